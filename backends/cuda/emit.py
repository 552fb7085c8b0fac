"""From the loop form to CUDA C++: many kernels as one text.

`emit_unit` makes one text of the kernels of several operators, since one compilation of many is several times cheaper than many compilations. The text includes
`pipelink.cuh` (`prelude/`) and is for people: names come from the program, above each kernel stands the line that it computes. What a launch needs to know of a
kernel, the parameters in their order, its bound of threads, what scratch it takes, is its `KernelCode`; `geometry.py` reads that for given sizes.

Index arithmetic is written in `index_t`, which is 32 bits wide, or 64 where the text is compiled with `PIPELINK_WIDE`. The host decides before each launch
by the sizes (`geometry.py`), so the wide version is compiled only when the first array comes along that needs it.

A kernel for a GPU (`form.py`) becomes a loop that strides over the grid, along x alone, so any number of blocks is right. A kernel of the CPU's form is taken
too: its parallel loop is spread over the grid, and statements for one thread are run by one.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from pipelink_ir.backends.cuda.bounds import LIMIT, Bounds
from pipelink_ir.backends.cuda.emit_expr import Expressions, Place, memory_type
from pipelink_ir.backends.cuda.emit_fragments import ATTEND, FRAGMENTS, STREAM, WINDOW, has_fragments, has_windows, streamed_in
from pipelink_ir.backends.cuda.emit_own import OWN, has_own
from pipelink_ir.backends.cuda.emit_stmt import Space, Writer, kind_name
from pipelink_ir.backends.cuda.kinds import Kinds, filled, kinds_of
from pipelink_ir.backends.cuda.long_lines import broken
from pipelink_ir.backends.cuda.names import Names, kernel_names
from pipelink_ir.backends.cuda.prelude import NAME, shown
from pipelink_ir.backends.cuda.target_facts import CUDA, TargetFacts
from pipelink_ir.backends.loops.contents import blocks, makes
from pipelink_ir.backends.loops.form import Attend, Block, Contract, For, Kernel, Program, Ring, evaluate
from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.nodes import Define, Operator

FEWEST = 1024
"""Threads that a multiprocessor of any device holds."""
THREADS = 256
"""Most threads of a block, unless a kernel is given another number."""

COPIES = 80
"""The first architecture that copies to shared memory beside what threads do; before it they do that themselves, to wherever it is."""

SHOWN = 4
"""Lines of the program that are shown above a kernel."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel. `kind`: `buffer` (an address), `symbol` (`index_t`: 4 bytes, 8 in the wide version), `scalar` (its `dtype`; bool is a byte),
    `buffers` (the address of a table with the addresses of all buffers, instead of them), `status` (an address), `scratch` (an address), `block_bytes` and
    `thread_bytes` (i64: the strides of scratch)."""

    kind: str
    name: str
    dtype: DType | None = None

    def bytes(self, wide: bool) -> int:
        """The size, which is its alignment too."""
        if self.kind == "symbol":
            return 8 if wide else 4
        return self.dtype.compute.bytes if self.kind == "scalar" and self.dtype else 8


@dataclass(frozen=True, slots=True)
class KernelCode:
    """What the host has to know of one emitted kernel."""

    kernel: Kernel
    symbol: str
    parameters: tuple[Parameter, ...]
    threads: int
    """Most threads of a block; what is launched is a multiple of 32."""
    exact: bool
    """Whether it must be that many."""
    per: str
    """What takes a turn of the outermost loop: a `thread`, or a `block`; `once`: a single thread does it all."""
    static_shared: int
    shared: tuple[Space, ...]
    """Scratch of a block, in shared memory given at the launch or, where it is too large, in `scratch`."""
    private: tuple[Space, ...]
    """Scratch of each thread, in `scratch`."""
    kinds: Kinds = field(compare=False, repr=False)
    near: bool = False
    """Whether what a block shares has to lie in shared memory, where the device copies beside what threads do (from sm_80 on)."""

    def team(self, symbols: Mapping[str, int]) -> int:
        """The threads of a block for given sizes, where it must be some number."""
        return self.threads if self.kernel.team is None else evaluate(self.kernel.team, dict(symbols))


@dataclass(frozen=True, slots=True)
class UnitCode:
    """One text and the kernels in it, a tuple for each program."""

    text: str
    programs: tuple[tuple[KernelCode, ...], ...]
    facts: TargetFacts

    @property
    def kernels(self) -> tuple[KernelCode, ...]:
        return tuple(k for p in self.programs for k in p)

    @property
    def whole(self) -> str:
        """The text with the prelude in the place where it is included: a file that any compiler takes."""
        head, rest = self.text.split(f'#include "{NAME}"\n', 1)
        return f"{head}{shown(self.facts, FRAGMENTS in head, STREAM in head, OWN in head, ATTEND in head, WINDOW in head)}\n{rest}"


def emit_unit(programs: Sequence[tuple[Program, Operator | None]], facts: TargetFacts = CUDA, threads: int = THREADS,
              aliased: Mapping[str, frozenset[str]] = MappingProxyType({})) -> UnitCode:
    """One text for the kernels of some programs. An operator says where its kernels come from. Buffers in `aliased`, by program, may share memory with others
    of their program."""
    names = kernel_names()
    parts, codes = [], []
    for program, operator in programs:
        kernels = []
        for kernel in program.kernels:
            text, code = _emit_kernel(kernel, names.new(kernel.name), facts, threads, aliased.get(program.name, frozenset()))
            parts += ["", *_comments(program, kernel, operator), *text]
            kernels.append(code)
        codes.append(tuple(kernels))
    kernels_of_all = [k.kernel for c in codes for k in c]
    uses = [macro for macro, found in ((FRAGMENTS, has_fragments), (OWN, has_own), (STREAM, _streams), (ATTEND, _attends), (WINDOW, has_windows))
            if any(found(k.body) for k in kernels_of_all)]
    head = [*(f"#define {macro} 1" for macro in uses), f'#include "{NAME}"', "namespace pl = pipelink;", "using namespace pl::types;"]
    return UnitCode("\n".join([*head, *parts, ""]), tuple(codes), facts)


def emit_program(program: Program, operator: Operator | None = None, facts: TargetFacts = CUDA, threads: int = THREADS) -> UnitCode:
    """One program as a text of its own."""
    return emit_unit([(program, operator)], facts, threads)


def _emit_kernel(kernel: Kernel, symbol: str, facts: TargetFacts, threads: int, aliased: frozenset[str]) -> tuple[list[str], KernelCode]:
    scope = Names(frozenset({symbol, "own", "common"}))
    w = Writer(kernel, facts, scope, Expressions(kernel, kinds_of(kernel), bounds=Bounds(memories=filled(kernel))), aliased=aliased)
    table = _needs_table(kernel, facts)
    written = {kernel.tickets, *_stored(kernel.body)}
    params, declared = [], []
    for n, b in enumerate(kernel.buffers):
        name = scope.new(b.name)
        w.e.places[b.name] = Place(name, b.memory)
        const = "" if b.name in written else "const "
        restrict = "" if b.name in aliased else f" {facts.restrict}"
        if table:
            w.head.append(f"  {const}{memory_type(b.memory)}*{restrict} {name} = static_cast<{const}{memory_type(b.memory)}*>(buffers[{n}]);")
        else:
            params.append(Parameter("buffer", b.name, b.memory))
            declared.append(f"{const}{memory_type(b.memory)}*{restrict} {name}")
    if table:
        params.append(Parameter("buffers", "buffers"))
        declared.append("void* const* buffers")
    for s in kernel.symbols:
        params.append(Parameter("symbol", s))
        declared.append(f"const index_t {w.name(s)}")
        w.e.bounds.names[s] = (0, LIMIT)
    for s, dtype in kernel.scalars:
        params.append(Parameter("scalar", s, dtype))
        declared.append(f"const {kind_name(dtype)} {w.name(s)}")
    threads = kernel.threads or threads
    per = _body(w)
    tail = _finish(w)
    params += [p for p, _ in tail]
    declared += [d for _, d in tail]
    streamed = streamed_in(kernel.body[-1].body) if kernel.body and isinstance(kernel.body[-1], For) else None
    if streamed is not None:
        # The teams, and a warpgroup that feeds them. Registers go from it to them, for which the compiler must know that a processor has one block.
        ring = streamed.ring if isinstance(streamed, Contract) else streamed.flow
        threads = 128 * (ring.teams + 1)
        bound = f"{threads}, {ring.beside if isinstance(ring, Ring) else 1}"
    else:
        fit = str(kernel.fit) if threads * kernel.fit <= FEWEST else f"PL_FIT({threads}, {kernel.fit})"
        bound = f"{threads}, {fit}" if kernel.fit and facts.bounds_blocks else str(threads)
    code = KernelCode(kernel, symbol, tuple(params), threads, bool(kernel.threads), per, w.static_shared, tuple(w.shared), tuple(w.private),
                      w.e.kinds, has_fragments(kernel.body) or streamed is not None)
    return [facts.kernel.format(threads=bound), *broken(f"{symbol}({', '.join(declared)}) {{"), *w.head, *w.lines, "}"], code


def _body(w: Writer) -> str:
    """The statements; what takes a turn of the outermost loop."""
    body = w.kernel.body
    last = body[-1] if body else None
    if isinstance(last, For) and last.kind in ("grid", "block", "parallel"):
        for s in body[:-1]:
            w.statement(s)
        w.outermost(last)
        return "block" if last.kind == "block" else "thread"
    w.line("if (pl::grid_thread() == 0) {")
    w.block(body)
    w.line("}")
    return "once"


def _finish(w: Writer) -> list[tuple[Parameter, str]]:
    """The parameters for failures and scratch, where they are needed, and the arenas at the top."""
    out: list[tuple[Parameter, str]] = []
    if w.uses_status:
        out.append((Parameter("status", "status"), "pl::Status* status"))
    if w.shared or w.private:
        out += [(Parameter("scratch", "scratch"), "u8* scratch"), (Parameter("block_bytes", "block_bytes"), "const i64 block_bytes")]
    arenas = []
    if w.shared:
        arenas += ["  PL_DYN_SHARED(u8, shared_memory);", "  pl::Arena common = pl::block_arena(shared_memory, scratch, block_bytes);"]
    if w.private:
        out.append((Parameter("thread_bytes", "thread_bytes"), "const i64 thread_bytes"))
        arenas.append("  pl::Arena own = pl::thread_arena(scratch, block_bytes, thread_bytes);")
    w.head = [*arenas, *w.head]
    return out


def _streams(body: Block) -> bool:
    """Whether factors stream through shared memory in a kernel."""
    last = body[-1] if body else None
    return isinstance(last, For) and streamed_in(last.body) is not None


def _attends(body: Block) -> bool:
    """Whether they are those of attention."""
    last = body[-1] if body else None
    return isinstance(last, For) and isinstance(streamed_in(last.body), Attend)


def _needs_table(kernel: Kernel, facts: TargetFacts) -> bool:
    """Whether there are more parameters than a kernel may have. All are counted with 8 bytes, and some room for scratch and status."""
    return 8 * (len(kernel.buffers) + len(kernel.symbols) + len(kernel.scalars) + 8) > facts.parameter_bytes


def _stored(block: Block) -> Iterable[str]:
    """Memory that a kernel writes: what its statements make, and what threads that bring factors draft there."""
    for s in block:
        yield from (n.removeprefix("%") for n in makes(s) if n.startswith("%"))
        if isinstance(s, Contract | Attend):
            yield s.maps
        for b in blocks(s):
            yield from _stored(b)


def _comments(program: Program, kernel: Kernel, operator: Operator | None) -> list[str]:
    """The lines of the program that a kernel computes."""
    defines = _defines(program, kernel, operator)
    if not defines:
        return [f"// {_one_line(kernel.name)}"]
    out = []
    for d in defines[:SHOWN]:
        place = f"{d.span.source.path}:{d.span.line}"
        line = d.span.source.line(d.span.line)
        out.append(_one_line(f"// {place}: {line.strip() if line else '%' + d.tensor}"))
    return out + ([f"// and {len(defines) - SHOWN} more"] if len(defines) > SHOWN else [])


def _defines(program: Program, kernel: Kernel, operator: Operator | None) -> list[Define]:
    if operator is None or operator.compute is None:
        return []
    name = kernel.name.removeprefix(program.name + ".")
    body = [d for d in operator.compute.body if isinstance(d, Define)]
    found = [d for d in body if d.tensor == name]
    return found or [d for d in body if d.tensor == name.rpartition(".")[0]]


def _one_line(text: str) -> str:
    """A comment stays on its line: no line ends, no backslash at its end, no trigraphs; and it stays short."""
    text = "".join(c if c.isprintable() else " " for c in text).rstrip("\\ ")
    return text if len(text) <= 140 else text[:139] + "…"
