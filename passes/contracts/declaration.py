"""What an operator's contract says of itself, whoever calls it: keys, values, and lines that contradict each other.

Primary places are at the contract, notes at the signature, the `dtypes` or the definition that it contradicts.
"""
from __future__ import annotations

from collections.abc import Iterator

from pipelink_ir.ir import contracts
from pipelink_ir.ir.affine import normal
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Define,
    Dots,
    Downgrade,
    Dynamic,
    Expr,
    FloatLit,
    Graph,
    IntLit,
    Items,
    Name,
    Node,
    Operand,
    Operator,
    Position,
    Range,
    Read,
    Reduce,
    Scoped,
    Setting,
    Value,
)
from pipelink_ir.ir.targets import LIBRARIES, TOOLCHAINS, known_archs, parse_arch, requirements
from pipelink_ir.ir.walk import names_in, walk

DOWNGRADE_KEYS = ("dtype", "precision", "block", "library", "budget")


def check_declaration(op: Operator, report: Report) -> None:
    """Report every fault of the contract sections of one operator."""
    contracts.check_keys(op, report)
    for section in op.sections:
        for entry in section.entries:
            scope = entry.tensor if isinstance(entry, Scoped) else None
            for s in entry.settings if isinstance(entry, Scoped) else (entry,):
                check = _CHECKS.get((section.name, s.key))
                if check is not None:
                    check(op, scope, s, report)
    for d in op.downgrades:
        _check_downgrade(op, d, report)


def _declared(op: Operator) -> Note:
    return Note(f"'@{op.name}' is declared here", op.signature)


def integer(value: Value) -> int | None:
    folded = normal(value) if isinstance(value, Expr) else None
    return folded.value if isinstance(folded, IntLit) else None


def _check_align(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    n = integer(s.value)
    if n is None and isinstance(s.value, Expr) and names_in(s.value):
        return
    if n is None or n < 1 or n & (n - 1):
        lower = 1 << max(0, (n or 64).bit_length() - 1) if n and n > 0 else 64
        report.error("align", s.span, f"an alignment is a power of two in bytes, not {contracts.describe(s.value)}", [_declared(op)],
                     f"write 'align = {lower}'")


def _check_padding(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    mode = contracts.word(s.value)
    if mode not in ("same", "valid"):
        return
    for o in op.operands:
        for r in op.results:
            if len(o.type.dims) != len(r.type.dims) or scope not in (None, o.name, r.name):
                continue
            for a, b in zip(o.type.dims, r.type.dims, strict=True):
                if isinstance(a, Dots) or isinstance(b, Dots) or normal(a) == normal(b) or not names_in(a) & names_in(b):
                    continue
                if mode == "same":
                    report.error("padding", s.span, f"'same' keeps the size, but '%{r.name}' has {_show(b)} where '%{o.name}' has {_show(a)}", [_declared(op)],
                                 f"write 'padding = valid', or give '%{r.name}' the dimension {_show(a)}")
                    return
    if mode == "valid":
        _check_valid(op, s, report)


def _check_valid(op: Operator, s: Setting, report: Report) -> None:
    """`valid` reads from the index on: a negative offset contradicts it."""
    if op.compute is None:
        return
    operands = {o.name for o in op.operands}
    for item in op.compute.body:
        if not isinstance(item, Define):
            continue
        axes = {a.index for a in item.axes if not isinstance(a, Dots | Position)}
        for e in walk(item.value):
            if not isinstance(e, Read) or e.tensor not in operands:
                continue
            for i in e.indices:
                own = names_in(i) & axes
                offset = normal(_without(i, next(iter(own)))) if len(own) == 1 and len(names_in(i)) == 1 else None
                if isinstance(offset, IntLit) and offset.value < 0:
                    report.error("padding", s.span, "'valid' reads from the index on, but this operator reads before it", [Note("it reads here", e.span)],
                                 "write 'padding = same', or shift the reads")
                    return


def _without(e: Expr, name: str) -> Expr:
    from pipelink_ir.ir.nodes import Apply
    return Apply("-", (e, Name(name)))


def _check_inplace(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    operand = next((o for o in op.operands if isinstance(s.value, Read) and o.name == s.value.tensor), None)
    result = next((r for r in op.results if r.name == scope), None)
    if operand is None or result is None:
        report.error("inplace", s.span, "'inplace' names the operand whose memory a result takes over", [_declared(op)], "write '%y { inplace = %x }'")
        return
    why = _not_in_place(op, result, operand)
    if why is not None:
        report.error("inplace", s.span, f"'%{result.name}' cannot take over the memory of '%{operand.name}': {why[0]}",
                     [_declared(op), *([Note("it is read here", why[1].span)] if why[1] is not None else [])], "drop 'inplace'")


def _not_in_place(op: Operator, result: Operand, operand: Operand) -> tuple[str, Expr | None] | None:
    """Why sharing memory would change the result: another size, or an element that is read after it is overwritten."""
    if operand.type.dtype != result.type.dtype:
        a, b = DTYPES.get(operand.type.dtype), DTYPES.get(result.type.dtype)
        if a is None or b is None or a.bytes != b.bytes:
            return f"one holds {operand.type.dtype}, the other {result.type.dtype}", None
    if tuple(map(_dim, operand.type.dims)) != tuple(map(_dim, result.type.dims)):
        return "their shapes differ", None
    for item in op.compute.body if op.compute is not None else ():
        if not isinstance(item, Define):
            continue
        own = tuple(Name(a.index) if not isinstance(a, Dots | Position) else a for a in item.axes)
        inside = {id(x) for e in walk(item.value) if isinstance(e, Reduce) for x in walk(e)}
        for e in walk(item.value):
            if isinstance(e, Read) and e.tensor == operand.name and (item.tensor != result.name or e.indices != own or id(e) in inside):
                return "an element would be read after it is overwritten", e
    return None


def _dim(d: Expr) -> Expr:
    return d if isinstance(d, Dots | Dynamic) else normal(d)


def _check_streams(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    n = integer(s.value)
    if n is None or n < 1:
        report.error("streams", s.span, f"'max_streams' is how many nodes may be in flight, not {contracts.describe(s.value)}", [_declared(op)],
                     "write 'max_streams = 1' or more")


def _check_batch(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    name = contracts.word(s.value)
    dims = {d.name for o in op.operands for d in o.type.dims if isinstance(d, Name)}
    if name not in dims:
        report.error("batch", s.span, f"'@{op.name}' has no dimension '{contracts.describe(s.value)}'", [_declared(op)],
                     (did_you_mean(name, dims) if name else None) or f"its dimensions are {', '.join(sorted(dims))}")
        return
    culprit = _mixes(op, name)
    if culprit is not None:
        report.error("batch", s.span, f"calls cannot be merged along '{name}': what one caller gives would reach another's result",
                     [Note("it is mixed here", culprit.span)],
                     f"drop 'batch', or let every result keep '{name}' and read it at its own index")


def _mixes(op: Operator, batch: str) -> Define | None:
    """The definition in which places along the batch dimension meet: a reduction over it, or a read at another index than the own one."""
    axes_of = {o.name: [k for k, d in enumerate(o.type.dims) if isinstance(d, Name) and d.name == batch] for o in op.operands}
    for item in op.compute.body if op.compute is not None else ():
        if not isinstance(item, Define):
            continue
        own = {a.index for a in item.axes if not isinstance(a, Dots | Position)}
        for e in walk(item.value):
            if isinstance(e, Reduce) and any(isinstance(r, Range) and batch in names_in(r.hi) for r in e.ranges):
                return item
            if isinstance(e, Read) and not any(isinstance(i, Dots) for i in e.indices):
                for k in axes_of.get(e.tensor, ()):
                    if k < len(e.indices) and not (isinstance(e.indices[k], Name) and getattr(e.indices[k], "name", "") in own):
                        return item
    return None


def _check_range(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    ends = [number(i) for i in s.value.items] if isinstance(s.value, Items) else []
    if len(ends) != 2 or (None not in ends and ends[0] > ends[1]):  # type: ignore[operator]
        if isinstance(s.value, Items) and any(isinstance(i, Expr) and names_in(i) for i in s.value.items):
            return
        report.error("range", s.span, f"a range is [lo, hi] with lo <= hi, not {contracts.describe(s.value)}", [_declared(op)], "write 'range = [0, 1]'")


def number(v: Value) -> float | None:
    if isinstance(v, IntLit | FloatLit):
        return v.value
    from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate
    try:
        return float(evaluate(v, {})) if isinstance(v, Expr) else None
    except CannotEvaluate:
        return None


def _check_library(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    for item in s.value.items if isinstance(s.value, Items) else (s.value,):
        name = contracts.word(item)
        if name not in LIBRARIES:
            report.error("library", item.span, f"there is no library '{name or contracts.describe(item)}'", (),
                         (did_you_mean(name, LIBRARIES) if name else None) or f"libraries are {', '.join(LIBRARIES)}")


def _check_arch(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    if requirements(s.value) is None:
        report.error("arch", s.span, f"{contracts.describe(s.value)} is no architecture that can be compiled for", (),
                     f"write 'arch = \">= sm_80\"'; known are {', '.join(known_archs())}")


def _check_toolchain(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    if contracts.word(s.value) not in TOOLCHAINS:
        report.error("attribute", s.span, f"'toolchain' is one of {', '.join(TOOLCHAINS)}", (),
                     did_you_mean(contracts.word(s.value) or "", TOOLCHAINS) or "write 'toolchain = nvrtc'")


_CHECKS = {
    ("memory", "align"): _check_align, ("memory", "padding"): _check_padding, ("memory", "inplace"): _check_inplace,
    ("execution", "max_streams"): _check_streams, ("execution", "batch"): _check_batch, ("semantic", "range"): _check_range,
    ("compile", "library"): _check_library, ("compile", "arch"): _check_arch, ("compile", "toolchain"): _check_toolchain,
}


# --------------------------------------------------------------------------------------------------------------------- downgrades


def _check_downgrade(op: Operator, d: Downgrade, report: Report) -> None:
    if parse_arch(d.target) is None:
        report.error("downgrade", d.span, f"'{d.target}' is no target", (), did_you_mean(d.target, known_archs()) or f"targets are {', '.join(known_archs())}")
        return
    earlier = next((x for x in op.downgrades if x.target == d.target and x is not d and x.span.start < d.span.start), None)
    if earlier is not None:
        report.error("duplicate", d.span, f"there are two policies for {d.target}", [Note("first here", earlier.span)], "keep one")
    labels = {label for label, _ in labels_of(op)}
    mixed = any(s.key == "precision" and contracts.word(s.value) == "mixed" for s in d.settings or ())
    seen: dict[str, Setting] = {}
    for s in d.settings or ():
        first = seen.setdefault(s.key, s)
        if first is not s:
            report.error("duplicate", s.key_span, f"'{s.key}' is set twice", [Note("first here", first.span)], "keep one")
        if s.key == "dtype":
            _check_policy_dtype(op, s, report)
        elif s.key == "budget":
            _check_budget(s, report)
        elif s.key == "library":
            _check_library(op, None, s, report)
        elif s.key == "precision":
            if not mixed:
                report.error("downgrade", s.span, "'precision' is 'mixed'", (), "write 'precision = mixed' and a dtype for each label")
        elif s.key == "block":
            continue
        elif s.key not in labels:
            offered = f"its labels are {', '.join(sorted(labels))}" if labels else f"keys of a policy are {', '.join(DOWNGRADE_KEYS)}"
            report.error("downgrade", s.key_span, f"'@{op.name}' has no node with the label '{s.key}'", [_declared(op)],
                         did_you_mean(s.key, [*labels, *DOWNGRADE_KEYS]) or offered)
        else:
            _check_policy_dtype(op, s, report)


def labels_of(op: Operator) -> Iterator[tuple[str, Node]]:
    """The labels of a graph operator's nodes."""
    graph: Graph | None = op.graph
    for n in graph.nodes if graph is not None else ():
        if isinstance(n, Node) and n.label is not None:
            yield n.label, n


def _check_policy_dtype(op: Operator, s: Setting, report: Report) -> None:
    name = contracts.word(s.value)
    dtype = DTYPES.get(name or "")
    if dtype is None:
        report.error("downgrade", s.span, f"'{contracts.describe(s.value)}' is no dtype", (),
                     did_you_mean(name or "", DTYPES) or f"dtypes are {', '.join(DTYPES)}")
        return
    allowed = contracts.dtypes(op)
    if not dtype.is_float or s.key != "dtype":
        return
    own = {o.type.dtype for o in (*op.operands, *op.results)}
    names = contracts.words(allowed.value) if allowed is not None else [n for n in own if n in DTYPES]
    if name not in names and (allowed is not None or not any(n not in DTYPES for n in own)):
        note = Note("its dtypes", allowed.span) if allowed is not None else _declared(op)
        report.error("downgrade", s.span, f"the policy lowers to {name}, which is not among the operator's dtypes {', '.join(names)}", [note],
                     f"lower to one of {', '.join(names)}, or to an integer dtype by quantising")


def _check_budget(s: Setting, report: Report) -> None:
    n = number(s.value)
    if n is None or not n > 0:
        report.error("budget", s.value.span, f"a budget is the largest relative error, a positive number, not {_show(s.value)}", (), "write 'budget = 1e-2'")


def _show(v: Value) -> str:
    from pipelink_ir.passes.infer.text import show
    return show(v) if isinstance(v, Expr) else contracts.describe(v)
