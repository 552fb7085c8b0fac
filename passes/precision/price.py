"""What a flat pipeline costs on an architecture: bytes, operations and launches of the kernels that `simplify` and `fuse` make of it, and the time by a model.

The time of a kernel is a launch and, of its bytes over the rate of memory and its operations over the rate of arithmetic, the longer and half of the shorter.
Which kernel computes what the scheduler says, and each kind reaches another share of the rates of `ir/gpus.py` (`machine.py`); products that stream take rounds
of tiles, beside which everything else runs.
What is small enough stays in the cache from one kernel to the next. What depends on parameters alone costs nothing: it is computed once, when they are bound.
Sizes that are known at the call alone are taken for large ones, since what is lowered is meant for large arrays.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Edge, IntLit, Module, Node, Operator, Pipeline, TensorType
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Tensor
from pipelink_ir.ir.walk import deep, names_in
from pipelink_ir.passes.aliasing.once import once_nodes
from pipelink_ir.passes.aliasing.order import origins
from pipelink_ir.passes.fuse import Fusion
from pipelink_ir.passes.fuse import Options as FuseOptions
from pipelink_ir.passes.fusion.cost import Sizes, microseconds, value_of
from pipelink_ir.passes.precision.machine import BEGINNING, BROUGHT, COMPUTED_FACTOR, SMALL_TILES, Machine, kernels_for, machine_of
from pipelink_ir.passes.precision.work import Kernel, amount, work_of
from pipelink_ir.passes.simplify import Options as SimplifyOptions
from pipelink_ir.passes.simplify import simplify
from pipelink_ir.passes.simplify.operators import simplify_operator

LARGE = 1 << 24
"""Elements of the largest edge from which on sizes that are not known are large enough."""
GUESSES = (256, 1024, 4096, 16384)
"""What they are taken for: the first that makes an edge large, or the last."""


@dataclass(frozen=True, slots=True)
class Price:
    """What one call of a program costs. `inserted` are the bytes of kernels that do nothing but make codes and casts."""

    seconds: float = 0.0
    bytes: float = 0.0
    operations: float = 0.0
    launches: int = 0
    inserted: float = 0.0
    kernels: tuple[tuple[float, float, float], ...] = ()
    """Seconds, bytes and operations of each kernel."""

    def plus(self, other: Price) -> Price:
        """Both together."""
        return Price(self.seconds + other.seconds, self.bytes + other.bytes, self.operations + other.operations, self.launches + other.launches,
                     self.inserted + other.inserted, self.kernels + other.kernels)

    def without(self, other: Price) -> list[float]:
        """Seconds of the kernels that the other one does not have."""
        return [k[0] for k in (Counter(self.kernels) - Counter(other.kernels)).elements()]

    def instead_of(self, base: Price) -> str:
        """The sums of a change, `41.2 us instead of 38 us, 12.6 MB instead of 10.1 MB, of which 3.1 MB quantise and bring back`."""
        text = f"{microseconds(self.seconds)} instead of {microseconds(base.seconds)}, {size_text(self.bytes)} instead of {size_text(base.bytes)}"
        if self.inserted:
            text += f", of which {size_text(self.inserted)} convert, quantise and bring back"
        if abs(self.operations - base.operations) > 0.005 * base.operations:
            text += f", {_count(self.operations)} operations instead of {_count(base.operations)}"
        return text


def size_text(n: float) -> str:
    """Bytes for people: `12.6 MB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n:.0f} bytes"


def _count(n: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if n >= unit:
            return f"{n / unit:.3g} {name}"
    return f"{n:.0f}"


def price(module: Module, arch: Arch, inserted: Set[str] = frozenset()) -> Price:
    """What one call of each pipeline of a flat module costs, all together. `inserted` are operators that make codes or casts. No operator may have a policy
    left, since that would keep it out of fusion."""
    return Pricer(arch).price(module, inserted)


@dataclass(slots=True)
class Pricer:
    """Prices modules in which operators of one name are one operator: what was found out about some is known of the next."""

    arch: Arch
    fusion: Fusion | None = None
    simple: dict[str, Operator] = field(default_factory=dict)
    """Operators in their simplified form."""

    def price(self, module: Module, inserted: Set[str] = frozenset()) -> Price:
        """The price of a module; see `price`."""
        with deep():
            module = self._fused(self._simplified(module))
            operators = {o.name: o for o in module.operators}
            out = Price()
            for p in module.pipelines:
                for node, one in node_prices(p, operators, self.arch):
                    out = out.plus(replace(one, inserted=one.bytes if node.op in inserted else 0.0))
        return out

    def _simplified(self, module: Module) -> Module:
        module = simplify(module, SimplifyOptions(operators=False), Report())
        for o in module.operators:
            if o.name not in self.simple:
                self.simple[o.name] = simplify_operator(o)
        return replace(module, items=tuple(self.simple[i.name] if isinstance(i, Operator) else i for i in module.items))

    def _fused(self, module: Module) -> Module:
        if self.fusion is None:
            self.fusion = Fusion(module, FuseOptions(device="cuda" if self.arch.kind == "cuda" else "cpu"))
        return self.fusion.again(module)


def node_prices(p: Pipeline, operators: Mapping[str, Operator], arch: Arch) -> Iterator[tuple[Node, Price]]:
    """What each node costs of a pipeline that is fused already; those that depend on parameters alone cost nothing and are left out."""
    machine, kernels = machine_of(arch), kernels_for(arch)
    once, sizes, origin = set(once_nodes(p)), sizes_of(p), origins(p)
    types = {o.name: o.type for o in p.inputs}
    made: set[str] = set()
    for k, n in enumerate(p.nodes):
        if not isinstance(n, Node):
            continue
        types |= {e.name: t for e, t in zip(n.results, n.types, strict=True)}
        args = [origin.get(a.name, a.name) for a in n.args if isinstance(a, Edge)]
        if k not in once:
            yield n, _node(n, operators[n.op], [types[a] for a in args], [a in made for a in args], sizes, machine, kernels)
            made |= {e.name for e in n.results}


def sizes_of(p: Pipeline) -> Sizes:
    """The sizes of a pipeline, large ones for those that are not known."""
    return _sized(p)[0]


def guessed(p: Pipeline) -> int | None:
    """What sizes are taken for that are not known; None if all are."""
    return _sized(p)[1]


def _sized(p: Pipeline) -> tuple[Sizes, int | None]:
    types = [*(o.type for o in p.inputs), *(t for n in p.nodes if isinstance(n, Node) for t in n.types)]
    unknown = {name for t in types for d in t.dims if not isinstance(d, IntLit) for name in names_in(d)}
    sizes, taken = Sizes(p), None
    unknown -= sizes.env.keys()
    for guess in GUESSES if unknown else ():
        sizes, taken = Sizes(p), guess
        sizes.env |= dict.fromkeys(unknown, guess)
        if max(map(sizes.elements, types), default=0) >= LARGE:
            break
    return sizes, taken


def _node(n: Node, op: Operator, args: list[TensorType], near: list[bool], sizes: Sizes, machine: Machine, arch: Arch) -> Price:
    work = work_of(op, arch)
    if work is None or len(args) != len(op.operands):
        total = float(sum(map(sizes.bytes, (*args, *n.types))))
        return _one(machine.launch + total / machine.bandwidth, total, 0.0, 1)
    env = sizes.bind(n, op, tuple(args))
    size = {o.name: float(sizes.bytes(t)) for o, t in (*zip(op.operands, args, strict=True), *zip(op.results, n.types, strict=True))}
    close = {o.name for o, a in zip(op.operands, near, strict=True) if a and size[o.name] <= machine.cache}
    out = Price()
    for k in work.called(env):
        out = out.plus(_kernel(k, work.op.tensors, size, close, env, machine))
        close |= {w for w in k.writes if size[w] <= machine.cache}
    return out


def _kernel(k: Kernel, tensors: Mapping[str, Tensor], size: dict[str, float], close: Set[str], env: Mapping[str, int], machine: Machine) -> Price:
    for name in (*k.reads, *k.writes):
        if name not in size:
            size[name] = _elements(tensors[name], env) * tensors[name].dtype.bytes
    moved = sum(size[name] for name in (*k.reads, *k.writes))
    near = sum(size[name] for name in k.reads if name in close)
    plain = sum(amount(a, env) for a in k.plain)
    products = [(d, amount(a, env)) for d, a in k.cores]
    # The product reads what was made of them.
    more = sum(size[name] * (k.copied[name] - 1) for name in k.computed)
    memory = (moved - near + more) / machine.bandwidth + near / machine.near
    beside = plain / machine.arithmetic
    if k.tiles is not None and k.tiles.small:
        width = DTYPES[products[0][0]].bytes if products[0][0] in DTYPES else 4
        brought = k.tiles.brought(env, machine.processors) * width * BROUGHT / machine.bandwidth
        seconds = machine.launch + SMALL_TILES + max(memory, brought) + min(memory, brought) / 2 + beside / 4
    elif k.tiles is not None:
        cores = _streamed(k, products, env, machine)
        seconds = machine.launch + max(beside, cores) + min(beside, cores) / 4 + 0.75 * memory
    else:
        # Without a rate for a dtype the scheduler would not have taken tensor cores.
        arithmetic = beside + sum(m / machine.cores(d, k.kind, k.flows) for d, m in products)
        if k.flows:
            cores = arithmetic - beside
            arithmetic = max(beside, cores) + min(beside, cores) / 4
        alone = max(memory, arithmetic) + min(memory, arithmetic) / 2
        seconds = machine.launch + max(k.slow * alone, k.chain.seconds(env, machine.processors) if k.chain is not None and machine.sm else 0.0)
    for name, times in k.copied.items():
        seconds += machine.launch + size[name] * (1 + times) * (COMPUTED_FACTOR if name in k.computed else 1) / machine.bandwidth
        moved += size[name] * (1 + times)
    seconds += machine.launch * (k.launches - 1)
    return _one(seconds, moved, plain + 2 * sum(m for _, m in products), k.launches + len(k.copied))


def _one(seconds: float, moved: float, operations: float, launches: int) -> Price:
    return Price(seconds, moved, operations, launches, kernels=((seconds, moved, operations),))


def _streamed(k: Kernel, products: list[tuple[str, float]], env: Mapping[str, int], machine: Machine) -> float:
    """Seconds of products that stream, in rounds of a tile for each processor, of which the last one need not be whole."""
    assert k.tiles is not None
    dtype = products[0][0]
    rounds = max(1.0, k.tiles.count(env) / machine.processors) + (BEGINNING if dtype in DTYPES and DTYPES[dtype].bytes == 1 else 0.0)
    return rounds * machine.processors * k.tiles.work(env) / machine.cores(dtype, k.kind)


def _elements(t: Tensor, env: Mapping[str, int]) -> float:
    """Elements of a local in memory."""
    out = 1.0
    for low, high in t.shape:
        out *= max(0, value_of(high, env) - value_of(low, env))
    return out * (1 if DTYPES[t.dtype.name].bytes else 0)
