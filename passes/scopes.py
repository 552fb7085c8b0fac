"""Names inside one pipeline or graph: edges, labels, attributes of nodes, cycles. Used by `resolve`."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.nodes import Alias, Attribute, Device, Edge, Expr, Node, Operator, Pack, Pipeline, Setting
from pipelink_ir.ir.walk import reads_in

Lookup = Callable[[Node], tuple[str, Operator] | None]
Item = Node | Alias


def check_unique(items: Iterable[Any], what: str, report: Report) -> None:
    """Report the second of two items of one name."""
    first: dict[str, Any] = {}
    for item in items:
        before = first.setdefault(item.name, item)
        if before is not item:
            span = getattr(item, "name_span", item.span)
            report.error("duplicate", span, f"{what.format(item.name)} is defined twice", [Note("first here", getattr(before, "name_span", before.span))],
                         "give one of the two another name")


def listed(names: Iterable[str], lead: str, sigil: str = "%") -> str | None:
    """The first names there are, as a help where none is near."""
    shown = sorted(names)[:8]
    return lead + ", ".join(sigil + n for n in shown) if shown else None


def produced(item: Item) -> tuple[Edge, ...]:
    """The edges that an item makes."""
    return (item.name,) if isinstance(item, Alias) else item.results


def consumed(item: Item) -> Iterator[Edge]:
    """The edges whose data an item reads."""
    if isinstance(item, Alias):
        yield item.of
        return
    for arg in item.args:
        if isinstance(arg, Pack):
            yield from arg.items
        else:
            yield arg


def check_scope(nodes: tuple[Item, ...], owner: Operator | Pipeline, lookup: Lookup, report: Report, targets: set[str]) -> tuple[Item, ...]:
    """Check the names of one scope and give its nodes with full operator names; the same tuple where nothing changed."""
    before = len(report.diagnostics)
    inputs = {o.name: o for o in (owner.operands if isinstance(owner, Operator) else owner.inputs)}
    made = _check_definitions(nodes, inputs, report)
    called = [lookup(n) if isinstance(n, Node) else None for n in nodes]
    for node, found in zip(nodes, called, strict=True):
        if isinstance(node, Node):
            _check_node(node, found, report, targets)
    _check_reads(nodes, owner, inputs, made, report)
    if not any(d.severity == "error" for d in report.diagnostics[before:]):
        _check_cycles(nodes, made, report)
    new = tuple(replace(n, op=f[0]) if isinstance(n, Node) and f is not None and f[0] != n.op else n for n, f in zip(nodes, called, strict=True))
    return nodes if all(a is b for a, b in zip(new, nodes, strict=True)) else new


def _check_definitions(nodes: Sequence[Item], inputs: dict[str, Any], report: Report) -> dict[str, int]:
    """Edge name -> index of the item that makes it."""
    made: dict[str, int] = {}
    first: dict[str, Edge] = {}
    labels: dict[str, Node] = {}
    for i, item in enumerate(nodes):
        for edge in produced(item):
            if edge.name in inputs or edge.name in made:
                other = first[edge.name].span if edge.name in first else inputs[edge.name].span
                report.error("duplicate", edge.span, f"'%{edge.name}' is defined twice", [Note("first here", other)], "give one of the two another name")
                continue
            made[edge.name], first[edge.name] = i, edge
        if isinstance(item, Node) and item.label is not None:
            before = labels.setdefault(item.label, item)
            if before is not item:
                report.error("duplicate", item.label_span or item.span, f"the label '{item.label}' is used twice",
                             [Note("first here", before.label_span or before.span)], "give one of the two another label")
    return made


def check_device(device: Device | None, targets: set[str], report: Report) -> None:
    """A device is `cpu`, `cuda:N` or a declared target."""
    if device is None or device.kind == "cuda" or (device.kind == "cpu" and device.index == 0):
        return
    if device.kind == "target":
        if device.name not in targets:
            report.error("device", device.span, f"no target is called '@{device.name}'", (),
                         did_you_mean(device.name or "", targets, "@") or f"declare it: target @{device.name} {{ arch = sm_90 }}")
        return
    meant = "cpu" if device.kind == "cpu" else f"cuda:{device.index}" if device.kind.lower() in ("gpu", "nvidia", "dev", "device", "cud") else None
    what = "there is one 'cpu'" if device.kind == "cpu" else f"there is no device '{device.kind}'"
    declared = device.kind in targets
    report.error("device", device.span, what, (), f"write '@{device.kind}'" if declared else f"write '{meant}'" if meant
                 else "devices are 'cpu', 'cuda:N' and declared targets, '@t4'")


def _check_node(node: Node, found: tuple[str, Operator] | None, report: Report, targets: set[str]) -> None:
    check_device(node.device, targets, report)
    if found is None:
        return
    op = found[1]
    declared = Note(f"'@{op.name}' is declared here", op.signature)
    if len(node.args) != len(op.operands):
        want = ", ".join("%" + o.name for o in op.operands)
        report.error("arity", node.op_span, f"'@{op.name}' takes {_count(len(op.operands), 'operand')} ({want}), but is given {len(node.args)}", [declared],
                     f"write '@{op.name}({want})'")
    elif len(node.results) != len(op.results):
        want = ", ".join("%" + o.name for o in op.results)
        report.error("arity", node.results[0].span if node.results else node.op_span,
                     f"'@{op.name}' has {_count(len(op.results), 'result')} ({want}), but the left side names {len(node.results)}",
                     [declared], f"write '{want} = @{op.name}(…)'")
    check_attributes(node.attrs, op, node, report)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def check_attributes(attrs: tuple[Setting, ...], op: Operator, node: Node, report: Report) -> None:
    """Unknown, repeated and missing attributes of a node."""
    known: dict[str, Attribute] = {a.name: a for a in op.attributes}
    declared = Note(f"'@{op.name}' is declared here", op.signature)
    given: dict[str, Setting] = {}
    for setting in attrs:
        first = given.setdefault(setting.key, setting)
        if first is not setting:
            report.error("duplicate", setting.key_span, f"'{setting.key}' is given twice", [Note("first here", first.span)], "keep one of the two")
        if setting.key not in known:
            report.error("attribute", setting.span, f"'@{op.name}' has no attribute '{setting.key}'", [declared],
                         did_you_mean(setting.key, known) or (f"its attributes are {', '.join(known)}" if known else "it has no attributes"))
    for name, attribute in known.items():
        if name not in given and attribute.default is None:
            report.error("attribute", node.op_span, f"'@{op.name}' needs a value for '{name}: {attribute.type}'", [declared],
                         f"write '@{op.name}(…) {{{name} = …}}'")


def _check_reads(nodes: Sequence[Item], owner: Operator | Pipeline, inputs: dict[str, Any], made: dict[str, int], report: Report) -> None:
    read: set[str] = set()
    known = set(inputs) | set(made)
    for item in nodes:
        for edge in consumed(item):
            read.add(edge.name)
            _check_edge(edge, known, report)
        for edge in item.after if isinstance(item, Node) else ():
            _check_edge(edge, known, report)
        # An attribute cannot be data, which is reported later; that nobody reads them is no news then.
        for setting in item.attrs if isinstance(item, Node) else ():
            read |= {r.tensor for r in reads_in(setting.value)} if isinstance(setting.value, Expr) else set()
    whose = "pipeline" if isinstance(owner, Pipeline) else "operator"
    for result in owner.results:
        # A result with the name of an input is a second definition, and reported as such.
        if result.name not in made and result.name not in inputs:
            report.error("result", result.span, f"the {whose} '@{owner.name}' never assigns its result '%{result.name}'", (),
                         f"write '%{result.name} = …'")
        read.add(result.name)
    if not isinstance(owner, Pipeline):
        return
    for name, operand in inputs.items():
        if name not in read:
            report.warning("name", operand.span, f"nothing reads the input '%{name}'", (), "give it to a node, or take it out of the signature")
    for item in nodes:
        edges = produced(item)
        # A node is there for one of its results; only those that nobody reads at all are worth a word.
        if (isinstance(item, Node) and any(e.name in read for e in edges)) or not edges:
            continue
        for edge in edges:
            if edge.name not in read:
                report.warning("result", edge.span, f"nothing reads '%{edge.name}'", (), "drop the node, or make the edge a result of the pipeline")


def _check_edge(edge: Edge, known: set[str], report: Report) -> None:
    if edge.name not in known:
        # Looking for near names takes its time: of very many mistakes the first ones get it.
        help = None
        if len(report.diagnostics) < 100:
            help = did_you_mean(edge.name, known, "%") or listed(known, "edges here are ")
        report.error("name", edge.span, f"there is no edge '%{edge.name}'", (), help)


def order(nodes: Sequence[Item], made: dict[str, int] | None = None) -> tuple[list[int], list[int]]:
    """(indices in dependency order, indices that are left because they need each other). Ties keep the order of the text."""
    import heapq
    if made is None:
        made = {e.name: i for i, item in enumerate(nodes) for e in produced(item)}
    needs = [_needs(item, made) for item in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    missing = [0] * len(nodes)
    for i, before in enumerate(needs):
        missing[i] = len(before)
        for j in before:
            users[j].append(i)
    ready = [i for i, n in enumerate(missing) if n == 0]
    heapq.heapify(ready)
    done: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        done.append(i)
        for u in users[i]:
            missing[u] -= 1
            if missing[u] == 0:
                heapq.heappush(ready, u)
    return done, [i for i in range(len(nodes)) if missing[i] > 0]


def needs_of(nodes: Sequence[Item]) -> list[set[int]]:
    """For each item the indices of those that it waits for, by data or by `after`."""
    made = {e.name: i for i, item in enumerate(nodes) for e in produced(item)}
    return [_needs(item, made) for item in nodes]


def _needs(item: Item, made: dict[str, int]) -> set[int]:
    edges = [*consumed(item), *(item.after if isinstance(item, Node) else ())]
    return {made[e.name] for e in edges if e.name in made}


def _check_cycles(nodes: Sequence[Item], made: dict[str, int], report: Report) -> None:
    left = order(nodes, made)[1]
    if not left:
        return
    data = [{made[e.name] for e in consumed(item) if e.name in made} for item in nodes]
    cycle = find_cycle(left, data)
    if cycle:
        first = min(cycle)
        report.error("cycle", nodes[first].span, _cycle_text(nodes, cycle), [Note("and needs this", nodes[i].span) for i in sorted(cycle) if i != first],
                     "break the ring: one of the nodes has to read something else")
        return
    everything = [_needs(item, made) for item in nodes]
    ring = sorted(find_cycle(left, everything))
    for i in ring:
        item = nodes[i]
        for edge in item.after if isinstance(item, Node) else ():
            if made.get(edge.name) in ring:
                report.error("dependency", edge.span, f"'after %{edge.name}' can never be met: '%{edge.name}' itself waits for this node",
                             [Note("it needs this node here", nodes[j].span) for j in ring if j != i], f"drop 'after %{edge.name}'")
                return


def find_cycle(among: Sequence[int], needs: Sequence[set[int]]) -> list[int]:
    """One ring among the given indices, empty if there is none; without recursion, linear."""
    inside = set(among)
    state: dict[int, int] = {}
    for root in among:
        if root in state:
            continue
        path: list[int] = []
        stack: list[tuple[int, Iterator[int]]] = [(root, iter(sorted(needs[root] & inside)))]
        state[root] = 1
        path.append(root)
        while stack:
            node, rest = stack[-1]
            for n in rest:
                if state.get(n) == 1:
                    return path[path.index(n):]
                if n not in state:
                    state[n] = 1
                    path.append(n)
                    stack.append((n, iter(sorted(needs[n] & inside))))
                    break
            else:
                state[node] = 2
                path.pop()
                stack.pop()
    return []


def _cycle_text(nodes: Sequence[Item], cycle: Sequence[int]) -> str:
    names = [f"'%{produced(nodes[i])[0].name}'" for i in sorted(cycle) if produced(nodes[i])]
    if len(names) == 1:
        return f"{names[0]} needs itself"
    shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]} need each other"
