"""Kernels that users write in CUDA: their file, what is compiled of it, and NVRTC's messages as located diagnostics.

A file is compiled as it is, behind the prelude, under its own name and line numbers. It may include headers that lie beside it, and those of the toolkit's
wheels where they are installed.
"""
from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pipelink_ir.backends.cuda import nvrtc, prelude
from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.nodes import Expr, Items, Kernel, Operator, Text, Value
from pipelink_ir.ir.source import Source, Span
from pipelink_ir.ir.targets import Arch

CODE = "PL4501"
"""A kernel that a user wrote, and that cannot be used."""

SHOWN = 20
"""Most errors of one file that are reported."""


@dataclass(frozen=True, slots=True)
class UserKernel:
    """One `kernel cuda "file.cu" { … }`. `block` and `grid` are expressions over the operator's dimensions, None where the file leaves them to us."""

    op: Operator
    source: Source
    entry: str
    block: tuple[Expr, ...] | None
    grid: tuple[Expr, ...] | None
    shared: Expr | None
    place: Span

    @property
    def text(self) -> str:
        """What is compiled."""
        name = self.source.path.replace("\\", "\\\\").replace('"', '\\"')
        return f'#include "{prelude.NAME}"\n#line 1 "{name}"\n{self.source.text}\n'


def user_kernel(op: Operator) -> UserKernel:
    """The kernel of an operator that has one; what is wrong with its file or settings is an error at the place that says so."""
    kernel = op.kernel
    assert kernel is not None
    report = Report()
    settings = {s.key: s for s in kernel.settings}
    entry = settings["entry"].value if "entry" in settings else None
    name = entry.value if isinstance(entry, Text) else op.name.rpartition(".")[2]
    source = _read(kernel, report)
    report.stop_if_failed()
    assert source is not None

    def sizes(key: str) -> tuple[Expr, ...] | None:
        value = settings[key].value if key in settings else None
        found = _sizes(value)
        if value is not None and (found is None or not 1 <= len(found) <= 3):
            report.error(CODE, settings[key].span, f"'{key}' is a list of one to three sizes", (), f"{key} = [256]")
        return found

    block, grid = sizes("block"), sizes("grid")
    asked = contracts.setting(op, "compile", "block")
    if block is None and asked is not None:
        block = _sizes(asked.setting.value)
    shared = settings["shared"].value if "shared" in settings else None
    report.stop_if_failed()
    place = settings["entry"].span if "entry" in settings else kernel.span
    return UserKernel(op, source, name, block, grid, shared if isinstance(shared, Expr) else None, place)


def _sizes(value: Value | None) -> tuple[Expr, ...] | None:
    if isinstance(value, Expr):
        return (value,)
    if isinstance(value, Items) and all(isinstance(i, Expr) for i in value.items):
        return tuple(i for i in value.items if isinstance(i, Expr))
    return None


def _read(kernel: Kernel, report: Report) -> Source | None:
    """The file, relative to the one that names it."""
    path = Path(kernel.span.source.path).parent / kernel.file
    try:
        return Source(str(path), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        report.error(CODE, kernel.span, f"'{path}' is not UTF-8: byte {error.start}", (), "save the file as UTF-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        report.error(CODE, kernel.span, f"the kernel's file '{path}' cannot be read: {reason}", (), "the path is relative to the file that names it")
    return None


def compile_user(kernel: UserKernel, arch: Arch, virtual: bool = False) -> nvrtc.Binary:
    """The file compiled; `ProgramError` with what NVRTC says of it, at its lines."""
    include = _folders(kernel) if "#" in (kernel.source.text or "") else ()
    try:
        binary = nvrtc.compile_source(nvrtc.Source(kernel.text, kernel.source.path, include=include, virtual=virtual), arch)
    except nvrtc.CompileFailed as failed:
        report = Report()
        _report(kernel, failed.log, report)
        report.stop_if_failed()
        raise
    if kernel.entry not in binary.usage and f".entry {kernel.entry}(" not in binary.ptx:
        _no_entry(kernel, binary)
    return binary


def toolkit_includes() -> tuple[str, ...]:
    """The folders of CUDA's headers that come with wheels."""
    spec = find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec else []
    found = [p for root in roots for pattern in ("cu*/include", "cuda_runtime/include") for p in sorted(root.glob(pattern))]
    return tuple(str(p) for p in found if (p / "cuda_fp16.h").is_file())


def _folders(kernel: UserKernel) -> tuple[str, ...]:
    """Where headers are looked for, if the file includes any."""
    if not re.search(r"^\s*#\s*include\b", kernel.source.text or "", re.M):
        return ()
    return (str(Path(kernel.source.path).parent), *toolkit_includes())


def _no_entry(kernel: UserKernel, binary: nvrtc.Binary) -> None:
    there = list(binary.usage) or re.findall(r"\.entry (\w+)", binary.ptx)
    report = Report()
    mangled = next((n for n in there if n.startswith("_Z") and f"{len(kernel.entry)}{kernel.entry}" in n), None)
    help = f"declare it `extern \"C\" __global__ void {kernel.entry}(…)`" if mangled else \
        f"entry = \"{there[0]}\"" if there and not there[0].startswith("_Z") else f"write `extern \"C\" __global__ void {kernel.entry}(…)`"
    what = f"it has {', '.join(there)}" if there else "it has no kernel at all"
    report.error(CODE, kernel.place, f"'{kernel.source.path}' has no kernel called '{kernel.entry}'; {what}", (), help)
    report.stop_if_failed()


# ------------------------------------------------------------------------------------------------------------------- messages

_MESSAGE = re.compile(r"^(?P<path>.*)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning)(?: #[\w-]+)?: (?P<text>.*)$")
_CARET = re.compile(r"^\s*\^\s*$")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of NVRTC: the file and line that it names, the column from 1 (0 where it shows none)."""

    path: str
    line: int
    column: int
    kind: str
    text: str


def messages(log: str) -> list[Message]:
    """The messages in a log of NVRTC, with the lines that belong to each joined, up to the excerpt and its caret."""
    out: list[Message] = []
    lines = log.splitlines()
    for n, line in enumerate(lines):
        m = _MESSAGE.match(line)
        if not m:
            continue
        more: list[str] = []
        column = 0
        for k in range(n + 1, min(n + 12, len(lines))):
            if not lines[k].strip() or _MESSAGE.match(lines[k]):
                break
            if _CARET.match(lines[k]):
                # The excerpt above is indented by two.
                column = max(1, lines[k].index("^") - 1)
                more = more[:-1]
                break
            more.append(lines[k].strip())
        out.append(Message(m["path"], int(m["line"]), column, m["kind"], " ".join([m["text"], *more])))
    return out


def _report(kernel: UserKernel, log: str, report: Report) -> None:
    found = [m for m in messages(log) if m.kind != "warning"]
    here = Note(f"'@{kernel.op.name}' names the file here", kernel.place)
    for m in found[:SHOWN]:
        if m.path != kernel.source.path:
            report.error(CODE, kernel.place, f"in '{m.path}', line {m.line}, included by '{kernel.source.path}': {m.text}", (), _help(m))
        else:
            report.error(CODE, _span(kernel.source, m), m.text, (here,), _help(m))
    if not found:
        text = " ".join(line.strip() for line in log.splitlines()[:4])
        report.error(CODE, kernel.place, f"'{kernel.source.path}' cannot be compiled: {text}", (), None)


def _span(source: Source, m: Message) -> Span:
    """The word at the place that a message names, or the line."""
    line = source.line(m.line) or ""
    starts = source.starts()
    if not 1 <= m.line <= len(starts):
        return Span(source, 0, 0)
    # Columns are counted in bytes.
    column = len(line.encode()[:m.column - 1].decode("utf-8", "ignore")) if m.column else len(line) - len(line.lstrip())
    word = re.match(r"\w+|.", line[column:])
    start = starts[m.line - 1] + column
    return Span(source, start, start + (len(word[0]) if word else 0))


def _help(m: Message) -> str | None:
    name = re.search(r"(?:could not|cannot) open source file \"([^\"]+)\"", m.text)
    if not name:
        return None
    folders = toolkit_includes()
    if folders:
        return f"headers are looked for beside the file and in {', '.join(folders)} (CUDA {nvrtc.version()})"
    return f"CUDA's headers are not installed: pip install nvidia-cuda-runtime brings them (NVRTC here is {nvrtc.version()}); \"{prelude.NAME}\" needs none"
