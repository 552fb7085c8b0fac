"""`downgrade TARGET { … }` and `library`: whether a policy can be carried out at all, whatever the program."""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Downgrade, Items, Node, Operator, Setting, Value
from pipelink_ir.ir.targets import LIBRARIES, Arch, arch_help, lacks, parse_arch
from pipelink_ir.passes.contracts.values import number, show_value

DOWNGRADE_KEYS = ("dtype", "precision", "block", "library", "budget")


def check_downgrade(op: Operator, d: Downgrade, operators: Mapping[str, Operator], report: Report) -> None:
    """Report a policy that cannot be carried out. `operators` are those that a graph's nodes may call."""
    arch = parse_arch(d.target)
    if arch is None:
        report.error("downgrade", d.span, f"'{d.target}' is no target, so this clause is never used", (), arch_help(d.target))
        return
    earlier = next((x for x in op.downgrades if x.target == d.target and x is not d and x.span.start < d.span.start), None)
    if earlier is not None:
        report.error("duplicate", d.span, f"there are two policies for {d.target}", [Note("first here", earlier.span)], "keep one")
        return
    seen: dict[str, Setting] = {}
    for s in d.settings or ():
        first = seen.setdefault(s.key, s)
        if first is not s:
            report.error("duplicate", s.key_span, f"'{s.key}' is set twice", [Note("first here", first.span)], "keep one")
        elif s.key == "dtype":
            _check_dtype(op, s, report)
        elif s.key == "budget":
            _check_budget(s, report)
        elif s.key == "library":
            check_library(op, None, s, report, arch)
        elif s.key == "block":
            check_block(op, None, s, report)
        elif s.key != "precision":
            _check_label(op, s, operators, report)
    _check_mixed(op, d, operators, report)


def labelled(op: Operator, path: str, operators: Mapping[str, Operator]) -> Operator | list[str] | None:
    """What the node with the label `path` calls, `outer.inner` for one inside a labelled graph (None if that operator is not known). Where there is no
    such label: those that there are, as far as the path leads."""
    label, _, rest = path.partition(".")
    nodes = {n.label: n for n in (op.graph.nodes if op.graph is not None else ()) if isinstance(n, Node) and n.label is not None}
    if label not in nodes:
        return sorted(nodes)
    callee = operators.get(nodes[label].op)
    if not rest or callee is None:
        return callee
    found = labelled(callee, rest, operators)
    return [f"{label}.{name}" for name in found] if isinstance(found, list) else found


def _check_label(op: Operator, s: Setting, operators: Mapping[str, Operator], report: Report) -> None:
    callee = labelled(op, s.key, operators)
    if isinstance(callee, list):
        offered = f"its labels are {', '.join(callee)}" if callee else f"it has no labelled node; keys of a policy are {', '.join(DOWNGRADE_KEYS)}"
        report.error("downgrade", s.key_span, f"'@{op.name}' has no node with the label '{s.key}'", [Note(f"'@{op.name}' is declared here", op.signature)],
                     did_you_mean(s.key, [*callee, *DOWNGRADE_KEYS]) or offered)
    elif callee is None or callee.graph is not None:
        _check_word(s, report)
    else:
        _check_dtype(callee, s, report)


def _check_mixed(op: Operator, d: Downgrade, operators: Mapping[str, Operator], report: Report) -> None:
    """`precision = mixed` and labels go together."""
    settings = {s.key: s for s in d.settings or ()}
    precision = settings.get("precision")
    if precision is not None and contracts.word(precision.value) != "mixed":
        report.error("downgrade", precision.span, "'precision' is 'mixed'", (), "write 'precision = mixed' and a dtype for each label")
        return
    others = [s for k, s in settings.items() if k not in DOWNGRADE_KEYS]
    named = [s for s in others if not isinstance(labelled(op, s.key, operators), list)]
    if precision is None and named:
        report.error("downgrade", named[0].span, f"the label '{named[0].key}' counts under 'precision = mixed' only", (),
                     "add 'precision = mixed' to the clause")
    if precision is not None and not others:
        labels = labelled(op, "", operators)
        example = f", as in '{labels[0]} = f16'; the labels are {', '.join(labels)}" if isinstance(labels, list) and labels else \
            ": label the nodes of a graph, '… as ffn_up'"
        report.error("downgrade", precision.span, "'precision = mixed' says nothing: no label has a dtype", (), "give labels a dtype" + example)


def _check_word(s: Setting, report: Report) -> bool:
    name = contracts.word(s.value)
    if name in DTYPES:
        return True
    from pipelink_ir.passes.infer.foreign import dtype_help
    report.error("downgrade", s.span, f"'{contracts.describe(s.value)}' is no dtype", (), dtype_help(name or "") or f"dtypes are {', '.join(DTYPES)}")
    return False


def _check_dtype(op: Operator, s: Setting, report: Report) -> None:
    """A float dtype must be one that the operator has; an integer dtype is reached by quantising floats."""
    if not _check_word(s, report):
        return
    name = contracts.word(s.value) or ""
    allowed = contracts.dtypes(op)
    own = list(dict.fromkeys(o.type.dtype for o in (*op.operands, *op.results)))
    names = contracts.words(allowed.value) if allowed is not None else [n for n in own if n in DTYPES]
    free = allowed is None and any(n not in DTYPES for n in own)
    note = Note("its dtypes", allowed.span) if allowed is not None else Note(f"'@{op.name}' is declared here", op.signature)
    floats = [n for n in names if n in DTYPES and DTYPES[n].is_float]
    if DTYPES[name].is_float and name not in names and not free:
        other = f"lower to one of {', '.join(floats)}, or to an integer dtype by quantising" if floats else "drop the clause: it computes with integers already"
        report.error("downgrade", s.span, f"the policy lowers to {name}, which is not among the dtypes of '@{op.name}': {', '.join(names)}", [note], other)
    elif not DTYPES[name].is_float and not floats and not free:
        report.error("downgrade", s.span, f"the policy quantises to {name}, but '@{op.name}' has no float operand: {', '.join(names)}", [note],
                     "drop the clause: it computes with integers already")


def _check_budget(s: Setting, report: Report) -> None:
    n = number(s.value)
    if n is None or not n > 0:
        report.error("budget", s.value.span, f"a budget is the largest relative error, a positive number, not {show_value(s.value)}", (),
                     "write 'budget = 1e-2'")


def check_library(op: Operator, scope: str | None, s: Setting, report: Report, arch: Arch | None = None) -> None:
    """Libraries that exist, and that the device of a policy has."""
    for item in s.value.items if isinstance(s.value, Items) else (s.value,):
        name = contracts.word(item)
        if name not in LIBRARIES:
            report.error("library", item.span, f"there is no library '{name or contracts.describe(item)}'", (),
                         (did_you_mean(name, LIBRARIES) if name else None) or f"libraries are {', '.join(LIBRARIES)}")
            continue
        missing = lacks(arch, name) if arch is not None else None
        if missing is not None:
            report.error("library", item.span, missing, (), "write 'library = generated', the compiler's own code")


def check_block(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    """Threads a block: a positive number, or up to three."""
    items: tuple[Value, ...] = s.value.items if isinstance(s.value, Items) else (s.value,)
    sizes = [number(i) for i in items]
    known = {a.name for a in op.attributes}
    if 1 <= len(sizes) <= 3 and all((n is not None and n >= 1 and n == int(n)) or contracts.word(i) in known for n, i in zip(sizes, items, strict=True)):
        return
    report.error("attribute", s.span, f"'block' is a number of threads, or up to three, not {contracts.describe(s.value)}", (), "write 'block = [256]'")
