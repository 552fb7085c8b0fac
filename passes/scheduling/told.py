"""What the ledger says of products of matrices on a GPU: which kernel computes each and why, and which libraries are listed and not called.

Whether cuBLASLt computes one is decided by the pass `schedule` (`libraries.py`), which says at a node why it does not."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import F32
from pipelink_ir.ir.gpus import facts_of
from pipelink_ir.ir.nodes import Apply, Define, Module, Node, Operator, Reduce
from pipelink_ir.ir.targets import CALLED, EMULATED, Arch, arch_of_target
from pipelink_ir.ir.walk import walk
from pipelink_ir.passes.devices import declared_archs
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.scheduling.attention import Attention, reasons
from pipelink_ir.passes.scheduling.convolutions import Convolution
from pipelink_ir.passes.scheduling.derivation import derivation
from pipelink_ir.passes.scheduling.few import Few
from pipelink_ir.passes.scheduling.gpu_place import gpu_plan
from pipelink_ir.passes.scheduling.kernels import KernelPlan, kernels_of
from pipelink_ir.passes.scheduling.libraries import told
from pipelink_ir.passes.scheduling.products import Product
from pipelink_ir.passes.scheduling.streams import Streamed
from pipelink_ir.passes.scheduling.strips import Strips
from pipelink_ir.passes.scheduling.tensor_cores import BYTES, EIGHTHS, HALVES, TensorCores, why_not

Said = tuple[str, str]
"""A kind of entry, and its text."""

PLAYED = "; on the processor the compiler's own kernels play it"
"""Where there is no device."""


def of_products(module: Module, target: str | None, declined: Mapping[str, str] | None = None) -> Iterator[tuple[Node, Said]]:
    """What is to be said of the nodes of all pipelines that run on a GPU. `declined`: why a library does not compute operators that it was planned for."""
    arch = _arch(module, target)
    if arch is None:
        return
    operators = {o.name: o for o in module.operators}
    played = target is not None and target.startswith(EMULATED)
    said: dict[str, tuple[Said, ...]] = {}
    for p in module.pipelines:
        for node in p.nodes:
            op = operators.get(node.op) if isinstance(node, Node) else None
            # Before sizes and types are inferred nothing is decided.
            if isinstance(node, Node) and node.types and op is not None:
                if op.name not in said:
                    chosen, why = told(op), (declined or {}).get(op.name)
                    library = [("other", f"{chosen.why}{PLAYED if played else ''}")] if chosen is not None and why is None else []
                    library += [("fallback", f"cuBLASLt does not compute it: {why}")] if why is not None else []
                    own = chosen is None or why is not None or played
                    said[op.name] = (*_libraries(op), *library, *(_kernels(op, arch) if own else ()))
                yield from ((node, s) for s in said[op.name])


def _arch(module: Module, target: str | None) -> Arch | None:
    """What a target compiles for; of `cuda` and `cuda:1` that is not known before a device is there, so it is no particular one."""
    if target is None:
        return None
    named = arch_of_target(target)
    if named is None and target.split(":")[0] in ("cuda", EMULATED):
        return Arch("cuda")
    found = declared_archs(module).get(target.removeprefix("@")) or named
    return found if found is not None and found.kind == "cuda" else None


def _libraries(op: Operator) -> Iterator[Said]:
    listed = contracts.setting(op, "compile", "library")
    names = contracts.words(listed.setting.value) if listed is not None else []
    for name in names[:names.index("generated")] if "generated" in names else names:
        if name not in CALLED:
            yield "fallback", f"'{name}' is listed before what runs instead: this version calls {' and '.join(CALLED)} alone"


def _kernels(op: Operator, arch: Arch) -> Iterator[Said]:
    if op.compute is None or not any(_is_product(x) for d in op.compute.body if isinstance(d, Define) for x in walk(d.value)):
        return
    known = None if arch.sm == 0 else arch
    typed, stored = derivation(typed_operator(op), "cuda")
    plan = gpu_plan(typed, stored)
    for name, why in reasons(typed, known).items():
        yield "declined", f"no kernel of its own computes the attention '%{name}': {why}"
    for name, ways in _attentions(kernels_of(typed, plan, known), arch).items():
        yield "other", f"'%{name}' is attention on tensor cores, {ways}"
    for k in kernels_of(typed, plan, known):
        product = f"'%{k.jobs[0][0].name}' is a product on tensor cores,"
        if isinstance(k.way, Streamed):
            if k.way.large is not None:
                continue  # the same in smaller tiles
            held = "tf32" if k.way.dtypes[0] is F32 else k.way.dtypes[0].name
            yield "other", (f"{product} wgmma of {held}, its factors streamed by the copy engine"
                            f"{_made(k.way)}; where memory or sizes are not fit for that, {_instruction(k.way.otherwise, arch)}")
        elif isinstance(k.way, Few):
            yield "other", f"{product} {_instruction(k.way, arch)} of {k.way.left}, of few rows, '%{k.way.stream}' read once"
        elif isinstance(k.way, Convolution):
            yield "other", (f"{product} {_instruction(k.way, arch)} of {k.way.left}, its windows read from tiles of the "
                            f"picture in shared memory, {' x '.join(map(str, k.way.tile))} places each")
        elif isinstance(k.way, Strips):
            yield "other", f"{product} {_instruction(k.way, arch)} of {k.way.left}, in strips of rows that stay in registers"
        elif isinstance(k.way, TensorCores) and k.way.unless is None:
            yield "other", f"{product} {_instruction(k.way, arch)} of {k.way.factors}{_better(arch, k.way)}"
        elif isinstance(k.way, Product):
            why = why_not(typed, plan.local, k.way, known) or "it has too few rows"
            yield "declined", f"tensor cores do not compute the product '%{k.jobs[0][0].name}': {why}"


def _instruction(way: Attention | Convolution | Few | Strips | TensorCores, arch: Arch) -> str:
    """What the kernel is made of on an architecture: where that has no instruction of a shape, several smaller ones do its work."""
    facts = facts_of(arch)
    left = way.factors if isinstance(way, Attention) else way.left
    shape = facts.shape("tf32" if left is F32 else left.name) if facts is not None else None
    return f"mma.sync {shape}" if shape is not None and way.instruction.startswith("mma.sync") else way.instruction


def _made(way: Streamed) -> str:
    """Which factors are made over before."""
    out = ""
    for m, dtype in zip((way.left, way.right), way.dtypes, strict=True):
        if m.turned:
            out += f", '%{m.tensor}' turned first"
        elif m.gathered:
            out += f", '%{m.tensor}' copied first in the order of its rows and terms"
        elif m.computed:
            out += f", {dtype} made of '%{m.tensor}' first, in memory of its own"
        elif m.converted:
            out += f", '%{m.tensor}' converted to {dtype} first"
        elif m.uneven:
            out += f", '%{m.tensor}' copied first if its lines do not follow each other at multiples of 16 bytes"
    return out


def _attentions(kernels: Iterable[KernelPlan], arch: Arch) -> dict[str, str]:
    """What is said of each definition that is attention."""
    out: dict[str, str] = {}
    for k in kernels:
        if isinstance(k.way, Attention):
            times = "once" if k.way.found.rounded is None else "twice, since its weights are rounded once they are divided"
            fed = "wgmma of {0}, fed by the copy engine, or where memory or sizes are not fit for that {1}" if k.way.flows else "{1} of {0}"
            words = fed.format(k.way.factors, _instruction(k.way, arch))
            out[k.jobs[0][0].name] = f"{words}, its scores never in memory; it goes through the keys {times}{_slower(k.way)}"
    return out


def _slower(way: Attention) -> str:
    """Why the fastest kernel is not taken, on an architecture that has it."""
    on = way.arch is not None and (way.arch.sm, way.arch.suffix) == (90, "a")
    return f"; wgmma does not do it: {way.lying}" if on and isinstance(way.lying, str) else ""


def _better(arch: Arch, way: TensorCores) -> str:
    return "; for sm_90a there may be a faster kernel" if arch.sm in (0, 90) and way.left.name in (*HALVES, *BYTES, *EIGHTHS, "f32") else ""


def _is_product(x: object) -> bool:
    return isinstance(x, Reduce) and x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*"
