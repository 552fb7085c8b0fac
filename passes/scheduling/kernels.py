"""Which kernels compute an operator on a GPU, and how each is laid over blocks and threads: the one place where a kind of kernel is chosen.

A kind has a word, the one that `schedule { %y { map = … } }` prints and reads, and finds out whether it can compute some definitions over one box; the first
of `KINDS` that can takes them. What a kind returns (its *way*) is all that the backend is told. To add one (rows in registers, rows that slide):

1. here: a frozen dataclass that says everything that has been decided, a function that returns it or None, and an entry in `KINDS` before those that it beats;
2. in `maps.py`: how the way is written as a value, `slide(h, 3)`, if its word alone does not say it;
3. in `backends/loops/gpu/build.py`: the function that writes its loops, in `BODIES` under the same word.

A kind that the user asks for by name is tried alone, so `find` must return None wherever it would compute something else.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pipelink_ir.ir.nodes import Apply, Name, Value
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.passes.scheduling.attention import Attention, attention_of, versions
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.knobs import NONE, Knobs, knobs_of
from pipelink_ir.passes.scheduling.maps import axes_of, word_of
from pipelink_ir.passes.scheduling.products import Product, tiled_product_of
from pipelink_ir.passes.scheduling.shape import Shape, shape_of
from pipelink_ir.passes.scheduling.steps import distributed
from pipelink_ir.passes.scheduling.streams import Streamed, Turning, streamed_of
from pipelink_ir.passes.scheduling.tensor_cores import TensorCores, tensor_cores_of
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.turns import Turn, turn_of
from pipelink_ir.passes.scheduling.windows import Window, window_of
from pipelink_ir.passes.scheduling.wishes import Wishes, wishes_of

Job = tuple[Tensor, Piece]
Way = Tiled | Attention | Streamed | Turning | TensorCores | Product | Turn | Window | Shape | Group
"""What was decided of a kernel; a `Group` is a recurrence, which runs in order."""


@dataclass(frozen=True, slots=True)
class Site:
    """One definition over a box that needs a kernel. `local` says what the kernel evaluates itself, `chosen` which piece of such a local it meets alone."""

    op: TypedOperator
    local: Callable[[str], bool]
    tensor: Tensor
    piece: Piece
    chosen: Mapping[str, int] = field(default_factory=dict)
    arch: Arch | None = None
    """What is compiled for, if that is known."""
    tiled: Tiled | None = None
    """How the kernel stages locals."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of kernel. Neighbours whose ways are equal share one kernel if it is `joint`."""

    word: str
    find: Callable[[Site], Way | None]
    joint: bool = False


def _attention(s: Site) -> Way | None:
    return None if s.chosen else attention_of(s.op, s.local, s.tensor, s.piece, s.arch)


def _tile(s: Site) -> Way | None:
    return s.tiled


def _stream(s: Site) -> Way | None:
    return streamed_of(s.op, s.local, s.tensor, s.piece, s.chosen, s.arch)


def _mma(s: Site) -> Way | None:
    return tensor_cores_of(s.op, s.local, s.piece, s.chosen, s.arch)


def _product(s: Site) -> Way | None:
    return tiled_product_of(s.op, s.local, s.piece, s.chosen)


def _turn(s: Site) -> Way | None:
    return turn_of(s.op, s.local, s.piece, s.chosen)


def _window(s: Site) -> Way | None:
    return window_of(s.op, s.local, s.piece, s.chosen)


def _block(s: Site) -> Way | None:
    shape = shape_of(s.op, s.local, s.piece, s.chosen)
    return shape if shape.kind == "block" else None


def _grid(s: Site) -> Way | None:
    return Shape("grid")


KINDS: tuple[Kind, ...] = (
    Kind("tile", _tile),
    Kind("attention", _attention),
    Kind("wgmma", _stream),
    Kind("mma", _mma),
    Kind("product", _product),
    Kind("turn", _turn),
    Kind("window", _window),
    Kind("block", _block, joint=True),
    Kind("grid", _grid, joint=True),
)
"""Every kind but that of recurrences, the first that fits is taken."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: the definitions that it computes side by side, its kind and what was decided of it. `name` tells it from the others of the operator."""

    name: str
    kind: str
    way: Way
    jobs: tuple[Job, ...] = ()
    chosen: Mapping[str, int] = field(default_factory=dict)
    knobs: Knobs = NONE
    """What is written of numbers that the backend else chooses."""


def way_of(site: Site, wish: Value | None = None, wishes: Wishes | None = None) -> tuple[Kind, Way]:
    """The kind that takes a definition, and its way; the one that is wished for if it can."""
    if wish is not None:
        found = _wished(site, wish)
        if found is not None:
            return found
        if wishes is not None:
            wishes.refuse(site.tensor.name, "map", *_why_not(site, wish))
    for kind in KINDS:
        way = kind.find(site)
        if way is not None:
            return kind, way
    raise AssertionError("the last kind takes everything")


def _wished(site: Site, wish: Value) -> tuple[Kind, Way] | None:
    """What is written, if it can be done."""
    kind = next((k for k in KINDS if k.word == word_of(wish)), None)
    if kind is None:
        return None
    axes = axes_of(wish, site.piece)
    way = Shape("block", axes) if kind.word == "block" and axes is not None else kind.find(site)
    return None if way is None else (kind, way)


def _why_not(site: Site, wish: Value) -> tuple[str, str]:
    """Why a way cannot be had, and what helps."""
    word = word_of(wish)
    if word not in {k.word for k in KINDS}:
        return f"there is no kind of kernel '{word}'" if word else "this is no kind of kernel", f"the kinds are {', '.join(k.word for k in KINDS)}"
    if isinstance(wish, Apply) and word == "block":
        return f"'%{site.tensor.name}' has no such axis", f"its axes are {', '.join(a.index for a in site.piece.axes) or 'none'}"
    return f"'%{site.tensor.name}' is nothing that a kernel of the kind '{word}' computes", "leave the line out, or write 'map = grid'"


def kernels_of(op: TypedOperator, plan: Plan, arch: Arch | None = None, wishes: Wishes | None = None) -> tuple[KernelPlan, ...]:
    """The kernels of an operator, in order. `arch` is what is compiled for, if that is known."""
    wishes = wishes or wishes_of(op.op, "cuda")
    groups = {n: g for g in op.order for n in g.tensors}
    out: list[KernelPlan] = []
    for step in plan.steps:
        first = step.tensors[0]
        if step.recurrence:
            for n in step.tensors:
                if word_of(wishes.maps(n, 1)[0] or Name("scan")) != "scan":
                    wishes.refuse(n, "map", f"'%{n}' is a recurrence, whose steps run in order", "write 'map = scan', or leave the line out")
            out.append(KernelPlan(first, "scan", groups[first]))
        elif len(step.tensors) > 1:
            out += _joint(op, plan, [op.tensors[n] for n in step.tensors], arch, wishes)
        else:
            out += _pieces(op, plan, op.tensors[first], arch, wishes)
    return tuple(_with_knobs(k, wishes) for k in out)


def _with_knobs(k: KernelPlan, wishes: Wishes) -> KernelPlan:
    knobs = knobs_of(k.kind, [t.name for t, _ in k.jobs] or [k.name], wishes)
    return k if knobs is NONE else replace(k, knobs=knobs)


def _joint(op: TypedOperator, plan: Plan, tensors: list[Tensor], arch: Arch | None, wishes: Wishes) -> list[KernelPlan]:
    """Tensors over one box: neighbours of one shape share a kernel."""
    out: list[KernelPlan] = []
    for t in tensors:
        kind, way = way_of(Site(op, plan.local, t, t.pieces[0], arch=arch), wishes.maps(t.name, 1)[0], wishes)
        if out and kind.joint and out[-1].kind == kind.word and out[-1].way == way:
            out[-1] = KernelPlan(out[-1].name, kind.word, way, (*out[-1].jobs, (t, t.pieces[0])))
        else:
            out += _with_other(KernelPlan(t.name, kind.word, way, ((t, t.pieces[0]),)))
    return out


def _pieces(op: TypedOperator, plan: Plan, t: Tensor, arch: Arch | None, wishes: Wishes) -> list[KernelPlan]:
    """A kernel for each piece, and for each part of what it joins."""
    jobs = [job for piece in t.pieces for job in distributed(op, plan.place, piece)]
    out: list[KernelPlan] = []
    maps = wishes.maps(t.name, len(jobs))
    for k, (piece, chosen) in enumerate(jobs):
        kind, way = way_of(Site(op, plan.local, t, piece, chosen, arch, plan.tiles.get(t.name)), maps[k], wishes)
        out += _with_other(KernelPlan(t.name if len(jobs) == 1 else f"{t.name}.{k}", kind.word, way, ((t, piece),), chosen))
    return out


def _with_other(k: KernelPlan) -> list[KernelPlan]:
    """A kernel, those before it that turn what it reads, and the one behind it that does the work where its way turns out unfit at run time."""
    if isinstance(k.way, Attention) and (k.way.open or k.way.flows):
        some = [KernelPlan(_version(k, way), k.kind, way, k.jobs, k.chosen) for way in versions(k.way)]
        return [*some, KernelPlan(f"{k.name}.beyond", "beyond", k.way, k.jobs, k.chosen)] if k.way.open else some
    if not isinstance(k.way, Streamed):
        return [k]
    turned = [KernelPlan(f"{k.name}.turned.{'left' if left else 'right'}", "turned", Turning(k.way, left), k.jobs, k.chosen)
              for left, m in ((True, k.way.left), (False, k.way.right)) if m.turned]
    return [*turned, k, KernelPlan(f"{k.name}.otherwise", "mma", k.way.otherwise, k.jobs, k.chosen)]


def _version(k: KernelPlan, way: Attention) -> str:
    """The name of one of several kernels for attention."""
    return f"{k.name}.flow{way.cut.terms}" if way.flowing else f"{k.name}.{way.cut.terms}" if way.open else k.name
