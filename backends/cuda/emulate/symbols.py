"""Static memory of a shared library: what kernels declare `__shared__` and global variables of users, by their symbols; and constants."""
from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_OBJECT, _PROGRAM, _SYMBOLS = 1, 1, 2
_WRITE, _ALLOCATED, _CODE = 1, 2, 4
_LOCAL_OF_C = re.compile(r"_ZZ(\d+)")


@dataclass(frozen=True, slots=True)
class Static:
    """A variable that may be written: its mangled name, where it lies in the library, and its size."""

    name: str
    offset: int
    bytes: int

    @property
    def shared(self) -> bool:
        """Whether it is a function's own: then it was declared `__shared__`."""
        return self.name.startswith("_ZZ")

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
    """All variables of an ELF library of 64 bits that may be written."""
    sections = _sections(library)
    return [Static(name, value, size) for name, kind, value, size, section in _symbols(library)
            if kind == _OBJECT and size and 0 < section < len(sections) and sections[section].flags & _WRITE]


def constants(library: bytes) -> list[tuple[int, int]]:
    """Where constants lie, and how many bytes: most have no symbol."""
    return [(s.address, s.size) for s in _sections(library) if s.kind == _PROGRAM and s.flags & (_ALLOCATED | _WRITE | _CODE) == _ALLOCATED and s.size]


def value_of(library: bytes, symbol: str) -> int:
    """Where a symbol lies in the library."""
    return next(value for name, _, value, _, _ in _symbols(library) if name == symbol)


class _Section(NamedTuple):
    """The head of a section."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


def _sections(data: bytes) -> list[_Section]:
    assert data[:6] == b"\x7fELF\x02\x01", "no ELF library of 64 bits"
    table, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + size * n)) for n in range(count)]


def _symbols(data: bytes) -> Iterator[tuple[str, int, int, int, int]]:
    """Name, type, value, size and section of each."""
    sections = _sections(data)
    for table in sections:
        if table.kind != _SYMBOLS:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, table.entry):
            name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", data, at)
            yield data[names + name:data.index(b"\0", names + name)].decode(), info & 15, value, size, section
