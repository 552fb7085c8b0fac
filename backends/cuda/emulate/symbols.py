"""Static memory of a shared library, by its symbols: what kernels declare `__shared__`, and global variables of users."""
from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_OBJECT = 1
_LOCAL_OF_C = re.compile(r"_ZZ(\d+)")


@dataclass(frozen=True, slots=True)
class Static:
    """A variable: its mangled name, where it lies in the library, its size, and whether it may be written."""

    name: str
    offset: int
    bytes: int
    writable: bool

    @property
    def shared(self) -> bool:
        """Whether it is a function's own: then it was declared `__shared__`."""
        return self.name.startswith("_ZZ") and self.writable

    @property
    def kernel(self) -> str | None:
        """The kernel that it belongs to; None for one of a function that several may call."""
        m = _LOCAL_OF_C.match(self.name)
        if not m:
            return None
        name = self.name[m.end():m.end() + int(m[1])]
        # Of C, without parameters: "E" follows at once.
        return name if self.name[m.end() + int(m[1]):].startswith("E") else None

    @property
    def shown(self) -> str:
        """The name that the text gives it: `tile` of `_ZZ…E4tile`, or of `_ZZ…E4tile_0`."""
        for m in re.finditer(r"E(\d+)", self.name):
            rest, size = self.name[m.end():], int(m[1])
            if size <= len(rest) and re.fullmatch(r"(_\d*)?", rest[size:]):
                return rest[:size]
        return self.name


def statics(library: bytes) -> list[Static]:
    """All variables of an ELF library of 64 bits."""
    return [Static(name, value, size, writable) for name, kind, value, size, writable in _symbols(library) if kind == _OBJECT and size]


def value_of(library: bytes, symbol: str) -> int:
    """Where a symbol lies in the library."""
    return next(value for name, _, value, _, _ in _symbols(library) if name == symbol)


def _symbols(data: bytes) -> Iterator[tuple[str, int, int, int, bool]]:
    """Name, type, value, size, and whether the section may be written."""
    assert data[:6] == b"\x7fELF\x02\x01", "no ELF library of 64 bits"
    table, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    # name, type, flags, address, offset, size, link, info, align, entry
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * n) for n in range(count)]
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind != 2:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, entry):
            name, info, _, section, value, nbytes = struct.unpack_from("<IBBHQQ", data, at)
            end = data.index(b"\0", names + name)
            writable = 0 < section < count and bool(sections[section][2] & 1)
            yield data[names + name:end].decode(), info & 15, value, nbytes, writable
