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

from pipelink_ir.ir.dtypes import F64
from pipelink_ir.ir.nodes import Apply, Name, Operator, Value
from pipelink_ir.ir.targets import Arch
from pipelink_ir.ir.typed import Group, Piece, Tensor, TypedOperator
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.scheduling.attention import Attention, Choosing, attention_of, versions
from pipelink_ir.passes.scheduling.blocks import THREADS, TILES, fits, nearest, setting_of, sizes_of, threads_of, tile_of
from pipelink_ir.passes.scheduling.columns import Columns, columns_of, known_parts
from pipelink_ir.passes.scheduling.convolutions import Convolution, convolution_of
from pipelink_ir.passes.scheduling.costs import Plan
from pipelink_ir.passes.scheduling.counts import known
from pipelink_ir.passes.scheduling.cuts import within
from pipelink_ir.passes.scheduling.few import MOST as MOST_ROWS
from pipelink_ir.passes.scheduling.few import Few, few_of
from pipelink_ir.passes.scheduling.knobs import NONE, Knobs, knobs_of
from pipelink_ir.passes.scheduling.long_rows import ABOVE, HALF, LongRows, long_rows
from pipelink_ir.passes.scheduling.maps import axes_of, word_of
from pipelink_ir.passes.scheduling.products import Product, tiled_product_of
from pipelink_ir.passes.scheduling.rows import ShortRows, Span, alone, blocks_of, short_rows
from pipelink_ir.passes.scheduling.shape import Shape
from pipelink_ir.passes.scheduling.steps import distributed
from pipelink_ir.passes.scheduling.streams import Streamed, Turning, streamed_of
from pipelink_ir.passes.scheduling.strips import Strips, strips_of
from pipelink_ir.passes.scheduling.tensor_cores import TensorCores, plain_read, tensor_cores_of
from pipelink_ir.passes.scheduling.tiles import Tiled
from pipelink_ir.passes.scheduling.together import elements, work_of
from pipelink_ir.passes.scheduling.turns import Turn, turn_of
from pipelink_ir.passes.scheduling.windows import Window, window_of
from pipelink_ir.passes.scheduling.wishes import Wishes, wishes_of

LARGE = float(1 << 23)
"""Elements of a definition that keep the device busy for much longer than a launch takes."""
WORK = 4000.0
"""Operations of a place, all together, that one launch writes out: it takes as many registers as the largest part of it."""
MANY_COLUMNS = 128
"""Columns of a convolution that streams."""
MOST = 64
"""Kernels that one launch computes."""

Job = tuple[Tensor, Piece]
Way = Tiled | Attention | Choosing | Few | Convolution | Strips | Streamed | Turning | TensorCores | Product | Columns | Turn | \
    Window | Shape | ShortRows | LongRows | Group
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
    return None if s.chosen or not s.op.reduces else attention_of(s.op, s.local, s.tensor, s.piece, s.arch)


def _tile(s: Site) -> Way | None:
    return s.tiled


def _few(s: Site) -> Way | None:
    way = few_of(s.op, s.local, s.tensor, s.piece, s.chosen, s.arch)
    # What is multiplied as it lies there the copy engine brings faster.
    return None if way is not None and way.rows is not None and plain_read(way.product.right) is not None and not way.uneven and _stream(s) is not None else way


def _convolution(s: Site) -> Way | None:
    found = None if tile_of(s.op.op) is not None else convolution_of(s.op, s.local, s.tensor, s.piece, s.chosen, s.arch)
    boxed = _stream(s) if found is not None and found.columns * found.panes >= MANY_COLUMNS else None
    # With many columns it pays that the copy engine brings the picture anew for each place of a window: everything else is faster.
    return None if isinstance(boxed, Streamed) and boxed.boxes is not None else found


def _strips(s: Site) -> Way | None:
    return None if tile_of(s.op.op) is not None else strips_of(s.op, s.local, s.tensor, s.piece, s.chosen, s.arch)


def _stream(s: Site) -> Way | None:
    return None if tile_of(s.op.op) is not None else streamed_of(s.op, s.local, s.tensor, s.piece, s.chosen, s.arch)


def _mma(s: Site) -> Way | None:
    return tensor_cores_of(s.op, s.local, s.piece, s.chosen, s.arch)


def _product(s: Site) -> Way | None:
    found, tile = tiled_product_of(s.op, s.local, s.piece, s.chosen), tile_of(s.op.op)
    if found is None:
        return None
    size = (found.reduce.dtype or F64).compute.bytes
    cut = found.cut if tile is None else nearest(*tile[:2])
    return replace(found, cut=cut if s.arch is None or not s.arch.sm else within(cut, lambda c: fits(c.shared(size), s.arch)))


def _columns(s: Site) -> Way | None:
    return columns_of(s.op, s.local, s.piece, s.chosen)


def _turn(s: Site) -> Way | None:
    return turn_of(s.op, s.local, s.piece, s.chosen)


def _window(s: Site) -> Way | None:
    return window_of(s.op, s.local, s.piece, s.chosen)


def _block(s: Site) -> Way | None:
    return blocks_of(s.op, s.local, (s.tensor, s.piece), s.chosen)


def _grid(s: Site) -> Way | None:
    return Shape("grid")


KINDS: tuple[Kind, ...] = (
    Kind("tile", _tile),
    Kind("attention", _attention),
    Kind("columns", _columns),
    Kind("few", _few),
    Kind("convolution", _convolution),
    Kind("strips", _strips),
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
    span: Span | None = None
    """The lengths of rows for which there is something to do; None: whatever they are."""


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
    return tuple(_with_knobs(op.op, k, wishes) for k in out)


def launches_of(op: TypedOperator, plan: Plan, arch: Arch | None = None, wishes: Wishes | None = None) -> tuple[tuple[KernelPlan, ...], ...]:
    """The kernels of an operator by launch, in order. Those of the kind `grid` that do not wait for each other share one, whatever their sizes: its threads are
    split among them. A kernel joins the first launch behind all that it reads, unless it is large, or the launch has much to compute already."""
    wishes = wishes or wishes_of(op.op, "cuda")
    out: list[list[KernelPlan]] = []
    where: dict[str, int] = {}
    first: dict[str, list[int]] = {}
    """The launches that begin with a kernel of each definition."""
    shared: dict[str, set[str]] = {}
    work: list[float] = []
    for k in kernels_of(op, plan, arch, wishes):
        names = [t.name for t, _ in k.jobs] or (list(k.way.tensors) if isinstance(k.way, Group) else [k.name])
        after = max((where[n] for n in _read(op, plan, k, names) if n in where), default=-1)
        fits = [i for i in range(after + 1, len(out)) if k.kind == "grid" and _alike(out[i][0], k)]
        own = sum(work_of(op, plan.inline, t) for t, _ in k.jobs) if k.kind == "grid" else 0.0
        likely = [i for i in fits if _small(k) and _small(out[i][0]) and work[i] + own <= WORK and len(out[i]) < MOST]
        at = wishes.launch(names[0], {n: i for n, of in first.items() for i in of if i in fits}, likely)
        if at is None:
            at = len(out)
            first.setdefault(names[0], []).append(at)
            out.append([])
            work.append(0.0)
        out[at].append(k)
        work[at] += own
        where.update((n, max(at, where.get(n, at))) for n in names)
        if len(out[at]) > 1:
            shared.setdefault(names[0], set()).add(out[at][0].jobs[0][0].name)
    wishes.launched(shared)
    return tuple(map(tuple, out))


def _alike(a: KernelPlan, b: KernelPlan) -> bool:
    return a.kind == b.kind == "grid" and a.knobs.threads == b.knobs.threads


def _small(k: KernelPlan) -> bool:
    """Whether a launch is worth sparing, as far as sizes are known."""
    return all(elements(t) <= LARGE or any(known(b) is None for box in t.shape for b in box) for t, _ in k.jobs)


def _read(op: TypedOperator, plan: Plan, k: KernelPlan, names: list[str]) -> set[str]:
    """What a kernel reads, through all that it computes itself."""
    values = [p.value for _, p in k.jobs] or [p.value for n in names for p in op.tensors[n].pieces]
    seen: set[str] = set()
    while values:
        for r in reads_in(values.pop()):
            if r.tensor not in seen:
                seen.add(r.tensor)
                values += [p.value for p in op.tensors[r.tensor].pieces] if plan.local(r.tensor) else []
    return seen


def _with_knobs(op: Operator, k: KernelPlan, wishes: Wishes) -> KernelPlan:
    kind = "block" if isinstance(k.way, ShortRows | LongRows) else k.kind
    names = [t.name for t, _ in k.jobs] or [k.name]
    knobs, block = knobs_of(kind, names, wishes), setting_of(op)
    if block is not None and kind in THREADS and not knobs.threads:
        knobs = replace(knobs, threads=threads_of(op))
    elif block is not None and (kind not in TILES if len(sizes_of(block)) > 1 else kind not in THREADS):
        wishes.note(block, names[0], f"'block' is not followed by kernels of the kind '{kind}'", "leave it out")
    return k if knobs is NONE else replace(k, knobs=knobs)


def _joint(op: TypedOperator, plan: Plan, tensors: list[Tensor], arch: Arch | None, wishes: Wishes) -> list[KernelPlan]:
    """Tensors over one box: neighbours of one shape share a kernel."""
    out: list[KernelPlan] = []
    for t in tensors:
        kind, way = way_of(Site(op, plan.local, t, t.pieces[0], arch=arch), wishes.maps(t.name, 1)[0], wishes)
        if out and kind.joint and out[-1].kind == kind.word and out[-1].way == way:
            out[-1] = KernelPlan(out[-1].name, kind.word, way, (*out[-1].jobs, (t, t.pieces[0])))
        else:
            out.append(KernelPlan(t.name, kind.word, way, ((t, t.pieces[0]),)))
    return [other for k in out for other in _with_other(op, plan, k)]


def _pieces(op: TypedOperator, plan: Plan, t: Tensor, arch: Arch | None, wishes: Wishes) -> list[KernelPlan]:
    """A kernel for each piece, and for each part of what it joins."""
    jobs = [job for piece in t.pieces for job in distributed(op, plan.place, piece)]
    out: list[KernelPlan] = []
    maps = wishes.maps(t.name, len(jobs))
    for k, (piece, chosen) in enumerate(jobs):
        kind, way = way_of(Site(op, plan.local, t, piece, chosen, arch, plan.tiles.get(t.name)), maps[k], wishes)
        out += _with_other(op, plan, KernelPlan(t.name if len(jobs) == 1 else f"{t.name}.{k}", kind.word, way, ((t, piece),), chosen))
    return out


def _with_other(op: TypedOperator, plan: Plan, k: KernelPlan) -> list[KernelPlan]:
    """A kernel, those before it that turn or copy what it reads, and the one behind it that does the work where its way turns out unfit at run time."""
    if isinstance(k.way, Shape) and k.kind == "block":
        long = None if k.chosen else long_rows(op, plan.local, k.jobs, k.way.axes)
        if long is None and not k.chosen and len(k.jobs) > 1 and any(long_rows(op, plan.local, [job], k.way.axes) for job in k.jobs):
            return [other for job in k.jobs for other in _with_other(op, plan, replace(k, name=job[0].name, jobs=(job,)))]
        short = short_rows(op, plan.local, k.jobs, k.way.axes, k.chosen)
        return _by_length(k, short, long, short is not None and alone(op, plan.local, k.jobs, short))
    if isinstance(k.way, Columns):
        n = known_parts(k.way, k.jobs[0][1])
        cut = [replace(k, name=f"{k.name}.parts", kind="parts"), replace(k, name=f"{k.name}.join", kind="join")]
        return [k] if n == 1 else cut if n is not None else [k, *cut]
    if isinstance(k.way, Attention) and (k.way.open or k.way.flows):
        some = [KernelPlan(f"{k.name}.chosen", "chosen", Choosing(k.way), k.jobs, k.chosen)] if k.way.masked else []
        some += [KernelPlan(_version(k, way), k.kind, way, k.jobs, k.chosen) for way in versions(k.way)]
        return [*some, KernelPlan(f"{k.name}.beyond", "beyond", k.way, k.jobs, k.chosen)] if k.way.open else some
    if isinstance(k.way, Few) and k.way.otherwise is not None:
        word = "wgmma" if isinstance(k.way.otherwise, Streamed) else "mma"
        more = replace(k, name=f"{k.name}.more", kind=word, way=k.way.otherwise, span=Span(k.way.length, MOST_ROWS))
        return [replace(k, span=Span(k.way.length, -1, MOST_ROWS)), *_with_other(op, plan, more)]
    if not isinstance(k.way, Streamed):
        return [k]
    before = []
    for left, m in ((True, k.way.left), (False, k.way.right)):
        kind = "turned" if m.turned else "copied" if m.moved or m.uneven else None
        if kind is not None:
            before.append(replace(k, name=f"{k.name}.{kind}.{'left' if left else 'right'}", kind=kind, way=Turning(k.way, left)))
    large = [] if k.way.large is None else [replace(k, way=k.way.large)]
    return [*before, *large, replace(k, name=f"{k.name}.small") if large else k, replace(k, name=f"{k.name}.otherwise", kind="mma", way=k.way.otherwise)]


def _by_length(k: KernelPlan, short: ShortRows | None, long: LongRows | None, few: bool) -> list[KernelPlan]:
    """The kernel of short rows or those of long ones instead of one with a block for each, or several where the length of a call decides. `few`: rows that half
    the threads of a block are enough for have a kernel of their own, whose threads have few registers."""
    if short is not None and not short.open:
        return [replace(k, kind="short", way=short)]
    above, most = short.most if short is not None else -1, None
    out: list[KernelPlan] = []
    if short is not None:
        out.append(replace(k, name=f"{k.name}.short", kind="short", way=short, span=Span(short.length, -1, short.most)))
    if long is not None:
        span, most = Span(long.length, ABOVE), ABOVE
        out += [replace(k, name=f"{k.name}.long.begin", kind="begin", way=replace(long, begins=True), span=span),
                replace(k, name=f"{k.name}.long", kind="long", way=long, span=span)]
        if not long.open:
            return [replace(p, span=None) for p in out]
    found = short or long
    if found is not None and most is not None and few and above < HALF:
        out.append(replace(k, name=f"{k.name}.longer", span=Span(found.length, HALF, most)))
        most = HALF
    return [*out, k if found is None else replace(k, span=Span(found.length, above, most))]


def _version(k: KernelPlan, way: Attention) -> str:
    """The name of one of several kernels for attention."""
    return f"{k.name}.flow{-(-max(way.cut.terms, way.cut.columns) // 64) * 64}" if way.flowing else f"{k.name}.{way.cut.terms}" if way.open else k.name
