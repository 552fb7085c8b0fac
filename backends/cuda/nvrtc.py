"""NVRTC through CuPy's bindings: from CUDA C++ to a cubin and PTX, for any architecture that it knows, on machines without a GPU too.

Everything that calls NVRTC is here. One text holds many kernels, since that compiles several times faster than many texts; several texts compile on several
threads. What was compiled is kept on disk under a key of all that it depends on. Options are fixed for all code of ours: no contraction and denormals kept, as
the language asks; CuPy's own loader would turn that around, so its `RawModule` is not used.
"""
from __future__ import annotations

import json
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.target_facts import CUDA
from pipelink_ir.backends.disk_cache import DiskCache, digest
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.targets import Arch

FORMAT = "1"
"""Part of every key: another way to call NVRTC than the options tell takes another number."""

OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--ptxas-options=-v")
"""Options of every compilation. `-v` puts registers and spills into the log."""

MISCOMPILES = "13.0"
"""This NVRTC makes wrong code of loops and borders that end at `size - 1` (seen on an H200: two of 2,004 random programs; right without optimisation, and right
with 13.5)."""

INSTALL = "pip install 'pipelink-ir[cuda13]' (or [cuda12] for a driver older than 580)"

_CACHE = DiskCache("cuda")


@dataclass(frozen=True, slots=True)
class Source:
    """One text to compile. `name` is what messages call it; `wide` computes indices in 64 bits; `include` are folders in which headers are looked for; `quick`
    compiles three times faster, to slower code: for those who ask only whether it compiles; `virtual` makes PTX alone, which the driver of a newer device
    translates."""

    text: str
    name: str = "kernels.cu"
    wide: bool = False
    include: tuple[str, ...] = ()
    quick: bool = False
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """What one kernel takes of a multiprocessor: registers of a thread, bytes of shared memory of a block, bytes of a thread's stack and of what was spilled
    to it."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    def __str__(self) -> str:
        spilled = f", {self.spill_stores + self.spill_loads} bytes spilled" if self.spill_stores + self.spill_loads else ""
        return f"{self.registers} registers, {self.shared} bytes of shared memory, {self.stack} bytes of stack{spilled}"


@dataclass(frozen=True, slots=True)
class Binary:
    """What was compiled. `cubin` is empty where the device is newer than NVRTC: then the driver translates `ptx`."""

    arch: str
    cubin: bytes
    ptx: str
    log: str
    usage: Mapping[str, Usage]
    note: str | None = None
    """What a reader of the result should know: that it is PTX of an older architecture."""

    @property
    def image(self) -> bytes:
        """What a driver loads."""
        return self.cubin or self.ptx.encode()


class CompileFailed(Exception):
    """NVRTC refuses a text; `log` is what it says."""

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


# ------------------------------------------------------------------------------------------------------------------- NVRTC itself


@cache
def _library() -> Any:
    """CuPy's bindings, once NVRTC is known to be there."""
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        raise UsageError(f"compiling for CUDA needs CuPy and NVRTC, and CuPy is not installed: {INSTALL}") from error
    try:
        nvrtc.getVersion()
    except Exception as error:
        raise UsageError(f"compiling for CUDA needs NVRTC, which CuPy cannot load ({_first_line(error)}): {INSTALL}") from error
    return nvrtc


def require() -> None:
    """A `UsageError` that says what to install where this machine cannot compile for CUDA."""
    _library()


def available() -> bool:
    """Whether this machine can compile for CUDA."""
    try:
        _library()
    except UsageError:
        return False
    return True


@cache
def version() -> str:
    """NVRTC's version, `13.5`."""
    return ".".join(map(str, _library().getVersion()))


@cache
def architectures() -> tuple[int, ...]:
    """The architectures that NVRTC knows, 90 for sm_90."""
    return tuple(sorted(_library().getSupportedArchs()))


def resolve(arch: Arch) -> tuple[str, str | None]:
    """The architecture that is compiled for, and a note where it is not the one asked for: a device that NVRTC does not know gets PTX of the newest below it
    that NVRTC does know."""
    known = architectures()
    if arch.sm in known:
        return f"sm_{arch.sm}{arch.suffix}", None
    below = [k for k in known if k < arch.sm]
    if not below:
        raise UsageError(f"NVRTC {version()} has no '{arch}'; it compiles for {', '.join(f'sm_{k}' for k in known)}")
    return f"compute_{below[-1]}", f"NVRTC {version()} does not know {arch}: this is PTX for sm_{below[-1]}, which the driver translates when it is loaded"


PTX_OF_CUDA = MappingProxyType({(12, 0): (8, 0), (12, 1): (8, 1), (12, 2): (8, 2), (12, 3): (8, 3), (12, 4): (8, 4), (12, 5): (8, 5), (12, 6): (8, 5),
                                (12, 7): (8, 6), (12, 8): (8, 7), (12, 9): (8, 8)})
"""The newest PTX that a driver reads, by the version of CUDA that it knows. From 13.0 on it is 9.0, 9.1 and so on."""
_PTX_VERSION = re.compile(rb"^\.version (\d+)\.(\d+)", re.M)


def ptx_for(image: bytes, cuda: int) -> bytes:
    """What a driver loads, for one that knows CUDA 13.0 (`13000`): PTX that says it is newer than the driver gets the driver's version. NVRTC writes its own
    newest version, whatever a text needs; what has an instruction that the driver does not know is refused by it all the same."""
    found = _PTX_VERSION.search(image[:4096]) if not image.startswith(b"\x7fELF") else None
    if found is None:
        return image
    major, minor = cuda // 1000, cuda % 1000 // 10
    most = (major - 4, minor) if major >= 13 else PTX_OF_CUDA.get((major, minor), (8, 0))
    if (int(found[1]), int(found[2])) <= most:
        return image
    return image[:found.start()] + b".version %d.%d" % most + image[found.end():]


# --------------------------------------------------------------------------------------------------------------------- compiling


def compile_source(source: Source, arch: Arch) -> Binary:
    """One text for one architecture, from the cache if it is there. `CompileFailed` has NVRTC's log."""
    target, note = resolve(arch)
    if source.virtual:
        target = target.replace("sm_", "compute_")
    _warn_of_faults()
    options = [f"--gpu-architecture={target}", *OPTIONS, *(["-DPIPELINK_WIDE"] if source.wide else []),
               *(["--Ofast-compile=max"] if source.quick else []), *(f"--include-path={p}" for p in source.include)]
    header = prelude.header(CUDA)
    # Headers from folders are not among the parts of the key, so what includes any is compiled each time.
    key = digest(FORMAT, version(), json.dumps(options), header, source.name, _without_comments(source.text)) if not source.include else None
    found = _CACHE.get(key) if key else None
    if found is not None:
        return _unpack(found, note)
    cubin, ptx, log = _compile(source, header, options)
    binary = Binary(target, cubin, ptx, log, parse_usage(log), note)
    if key:
        _CACHE.put(key, _pack(binary))
    return binary


def compile_sources(sources: Sequence[Source], arch: Arch) -> list[Binary]:
    """Several texts, on several threads: NVRTC releases the interpreter while it works. The first failure is raised."""
    workers = min(environment.num_threads(), len(sources))
    if workers <= 1:
        return [compile_source(s, arch) for s in sources]
    _library()
    with ThreadPoolExecutor(workers, thread_name_prefix="nvrtc") as pool:
        return list(pool.map(lambda s: compile_source(s, arch), sources))


def _compile(source: Source, header: str, options: Sequence[str]) -> tuple[bytes, str, str]:
    nvrtc = _library()
    program = nvrtc.createProgram(source.text, source.name, [header.encode()], [prelude.NAME.encode()])
    try:
        try:
            nvrtc.compileProgram(program, list(options))
        except nvrtc.NVRTCError as error:
            raise CompileFailed(_text(nvrtc.getProgramLog(program)) or str(error)) from error
        # CuPy leaves off the last byte of a cubin.
        cubin = nvrtc.getCUBIN(program) + b"\0" if "=sm_" in options[0] else b""
        return cubin, _text(nvrtc.getPTX(program)), _text(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


def _text(value: str | bytes) -> str:
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else value).rstrip("\0").rstrip()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _without_comments(text: str) -> str:
    """Lines that are comments say where code comes from, and compile to nothing."""
    return "\n".join("" if line.startswith("//") else line for line in text.split("\n"))


def numbered(text: str) -> str:
    """A text with line numbers, as a compiler counts them."""
    return "\n".join(f"{n:5}  {line}" for n, line in enumerate(text.split("\n"), 1)) + "\n"


def keep_numbered(text: str, stem: str) -> str:
    """Writes a numbered text where it stays, and says where."""
    name = f"{stem}-{digest(text)[:12]}.cu.txt"
    for folder in (environment.cache_dir() / "failed", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / name
            path.write_text(numbered(text), encoding="utf-8")
            return str(path)
        except OSError:
            continue
    return "<nowhere: no folder can be written>"


# --------------------------------------------------------------------------------------------------------------- logs, the cache

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def parse_usage(log: str) -> dict[str, Usage]:
    """Registers, shared memory and spills of each kernel, from ptxas."""
    out: dict[str, Usage] = {}
    name, spills = "", (0, 0, 0)
    for line in log.splitlines():
        if m := _ENTRY.search(line):
            name, spills = m[1], (0, 0, 0)
        elif m := _SPILLS.search(line):
            spills = int(m[1]), int(m[2]), int(m[3])
        elif (m := _USED.search(line)) and name:
            out[name] = Usage(int(m[1]), int(m[2] or 0), *spills)
            name = ""
    return out


@dataclass(frozen=True, slots=True)
class _Entry:
    """The head of an entry of the cache; the cubin and the PTX follow."""

    arch: str
    cubin: int
    ptx: int
    log: str
    usage: dict[str, dict[str, int]] = field(default_factory=dict)


def _pack(b: Binary) -> bytes:
    ptx = b.ptx.encode()
    head = json.dumps(asdict(_Entry(b.arch, len(b.cubin), len(ptx), b.log, {k: asdict(u) for k, u in b.usage.items()}))).encode()
    return len(head).to_bytes(4, "little") + head + b.cubin + ptx


@cache
def _warn_of_faults() -> None:
    if version() == MISCOMPILES:
        warnings.warn("NVRTC 13.0 is known to compile some loops wrongly; install a newer one: pip install -U 'nvidia-cuda-nvrtc>=13.5'", stacklevel=2)


def _unpack(data: bytes, note: str | None) -> Binary:
    size = int.from_bytes(data[:4], "little")
    head = _Entry(**json.loads(data[4:4 + size]))
    body = data[4 + size:]
    usage = {k: Usage(**u) for k, u in head.usage.items()}
    return Binary(head.arch, body[:head.cubin], body[head.cubin:].decode(), head.log, usage, note)
