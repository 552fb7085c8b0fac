"""`downgrade TARGET { … }`: whether a policy can be carried out at all, whatever the program. What a clause says by itself is in `clause_words.py`."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import About, Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Alias, Downgrade, Node, Operator, Setting
from pipelink_ir.ir.targets import Arch, arch_help, parse_arch, requirements
from pipelink_ir.passes.contracts.clause_words import ALL_KEYS, Clause, check_clause, check_dtype_word, check_reach
from pipelink_ir.passes.contracts.sum_lengths import check_sums
from pipelink_ir.passes.precision.labels import admitted
from pipelink_ir.passes.precision.own_kernels import GENERATED, runs_kernel, why_not
from pipelink_ir.passes.precision.policy import CODED, CODES

Operators = Mapping[str, Operator]


def check_downgrade(op: Operator, d: Downgrade, operators: Operators, report: Report) -> None:
    """Report a policy that cannot be carried out. `operators` are those that a graph's nodes may call."""
    arch = parse_arch(d.target)
    if arch is None:
        report.error("downgrade", d.span, f"'{d.target}' is no target, so this clause is never used", (), arch_help(d.target))
        return
    earlier = next((x for x in op.downgrades if x.target == d.target and x is not d and x.span.start < d.span.start), None)
    if earlier is not None:
        report.error("duplicate", d.span, f"there are two policies for {d.target}", [Note("first here", earlier.span)], "keep one")
        return
    _check_target(op, d, arch, report)
    if d.settings is None:
        return
    before = len(report.diagnostics)
    clause = check_clause(d.settings, arch, report, [a.name for a in op.attributes])
    if any(x.severity == "error" for x in report.diagnostics[before:]):
        return
    _OnOperator(op, d, arch, clause, operators, report).check()


def _check_target(op: Operator, d: Downgrade, arch: Arch, report: Report) -> None:
    """Clauses that no build comes to, whatever the program declares."""
    if arch.kind == "reference":
        report.warning("downgrade", d.span, "the reference computes what is written, so this clause is never used", (), "leave it out")
        return
    found = contracts.setting(op, "compile", "arch")
    needs = requirements(found.setting.value) if found is not None else None
    if found is not None and needs and all(r.compare == "==" and r.arch == arch for r in needs) and arch.kind == "cuda":
        report.warning("downgrade", d.span, f"'@{op.name}' is for {arch} alone, and the policy is for {arch}: as it is written it is built for no GPU",
                       [Note("it asks for it here", found.setting.span)], f"write what the policy asks for into the operator, or 'arch = \">= {arch}\"'")


def labelled(op: Operator, path: str, operators: Operators, index: dict[str, dict[str, Node]]) -> Operator | list[str] | None:
    """What the node with the label `path` calls, `outer.inner` for one inside a labelled graph (None if that operator is not known). Where there is no
    such label: those that there are, as far as the path leads. `index` keeps the labels of operators that were looked at."""
    label, _, rest = path.partition(".")
    nodes = index.get(op.name)
    if nodes is None:
        nodes = {n.label: n for n in (op.graph.nodes if op.graph is not None else ()) if isinstance(n, Node) and n.label is not None}
        index[op.name] = nodes
    if label not in nodes:
        return sorted(nodes)
    callee = operators.get(nodes[label].op)
    if not rest or callee is None:
        return callee
    found = labelled(callee, rest, operators, index)
    return [f"{label}.{name}" for name in found] if isinstance(found, list) else found


def leaves(op: Operator, operators: Operators) -> Iterator[Operator]:
    """The operators that a graph comes down to, each once."""
    return (x for x in within(op, operators) if x.graph is None)


def within(op: Operator, operators: Operators) -> Iterator[Operator]:
    """An operator and all that are inside, each once."""
    seen: set[str] = {op.name}
    todo = [op]
    while todo:
        one = todo.pop()
        yield one
        for n in one.graph.nodes if one.graph is not None else ():
            callee = operators.get(n.op) if isinstance(n, Node) else None
            if callee is not None and callee.name not in seen:
                seen.add(callee.name)
                todo.append(callee)


@dataclass(frozen=True, slots=True)
class _OnOperator:
    """One clause, whose words are good, on one operator."""

    op: Operator
    d: Downgrade
    arch: Arch
    clause: Clause
    operators: Operators
    report: Report
    index: dict[str, dict[str, Node]] = field(default_factory=dict)

    def _at(self, path: str) -> Operator | list[str] | None:
        return labelled(self.op, path, self.operators, self.index)

    def check(self) -> None:
        before = len(self.report.diagnostics)
        for s in self.clause.labels:
            self._label(s)
        self._mixed()
        dtype = self.clause.of.get("dtype")
        if dtype is not None and check_dtype_word(dtype, self.report):
            if self.op.graph is None:
                self._dtype(self.op, dtype, self.clause.word("scheme") == "plain")
            else:
                self._inside(self.op, dtype)
        if self.op.graph is None and any(k in self.clause.of for k in ("dtype", "weights")):
            self._leaf()
        self._launched()
        if not any(d.severity == "error" for d in self.report.diagnostics[before:]):
            self._lowers_something()
            check_reach(self.clause, self._of_results(), self.report)

    @property
    def declared(self) -> Note:
        return Note(f"'@{self.op.name}' is declared here", self.op.signature)

    def _error(self, s: Setting, message: str, notes: Sequence[Note], help: str, *, key: bool = False) -> None:
        self.report.error("downgrade", s.key_span if key else s.span, message, notes, help)

    # ------------------------------------------------------------------------------------------------------------------- labels

    def _label(self, s: Setting) -> None:
        callee = self._at(s.key)
        if isinstance(callee, list):
            self._no_label(s, callee)
        elif check_dtype_word(s, self.report) and callee is not None:
            if callee.graph is None:
                self._dtype(callee, s, self.clause.word("scheme") == "plain")
                self._supported(callee, s)
                self._kernel(callee, s)
            else:
                self._inside(callee, s)

    def _no_label(self, s: Setting, there: list[str]) -> None:
        parent, _, last = s.key.rpartition(".")
        above = self._at(parent) if parent else None
        if isinstance(above, Operator) and above.graph is None:
            self._error(s, f"'{parent}' calls '@{above.name}', which has no node '{last}': it is no graph", [Note("it is declared here", above.signature)],
                        f"write '{parent} = {contracts.describe(s.value)}'", key=True)
            return
        offered = f"its labels are {', '.join(there)}" if there else f"it has no labelled node; keys of a policy are {', '.join(ALL_KEYS)}"
        self._error(s, f"'@{self.op.name}' has no node with the label '{s.key}'", [self.declared],
                    did_you_mean(s.key, [*there, *ALL_KEYS]) or offered, key=True)

    def _mixed(self) -> None:
        """`precision = mixed` and labels go together."""
        precision, others = self.clause.of.get("precision"), self.clause.labels
        known = [s for s in others if not isinstance(self._at(s.key), list)]
        if precision is None and known:
            self._error(known[0], f"the label '{known[0].key}' counts under 'precision = mixed' only", (), "add 'precision = mixed' to the clause")
        if precision is not None and not others:
            labels = self._at("")
            example = f", as in '{labels[0]} = f16'; the labels are {', '.join(labels)}" if isinstance(labels, list) and labels else \
                ": label the nodes of a graph, '… as ffn_up'"
            self._error(precision, "'precision = mixed' says nothing: no label has a dtype", (), "give labels a dtype" + example)

    # -------------------------------------------------------------------------------------------------------------------- dtypes

    def _dtype(self, op: Operator, s: Setting, plain: bool) -> None:
        """A float dtype must be one that the operator has; codes are reached by quantising floats."""
        name = contracts.word(s.value) or ""
        allowed, names = contracts.dtypes(op), [n for n in admitted(op) if n in DTYPES]
        own = {o.type.dtype for o in (*op.operands, *op.results)}
        free = allowed is None and any(n not in DTYPES for n in own)
        note = Note("its dtypes", allowed.span) if allowed is not None else Note(f"'@{op.name}' is declared here", op.signature)
        floats = [n for n in names if DTYPES[n].is_float]
        quantised = name in CODES and not (plain and DTYPES[name].is_float)
        if not quantised and name not in names and not free:
            help = _what_it_could_have(name, floats, allowed is not None) if floats else "drop the clause: it computes with integers already"
            self._error(s, f"the policy lowers to {name}, which is not among the dtypes of '@{op.name}': {', '.join(names)}", [note], help)
        elif quantised and not floats and not free:
            self._error(s, f"the policy quantises to {name}, but '@{op.name}' has no float operand: {', '.join(names)}", [note],
                        "drop the clause: it computes with integers already" if op is self.op else f"leave '{s.key}' out: it computes with integers already")

    def _supported(self, op: Operator, s: Setting) -> None:
        """What is lowered must not say that the target is none of its own."""
        own = next((d for d in op.downgrades if parse_arch(d.target) == self.arch and d.settings is None), None)
        if own is not None:
            self._error(s, f"the policy takes '@{op.name}' to {self.arch}, where it says that it is unsupported", [Note("it says so here", own.span)],
                        f"take one of the two back: say what '@{op.name}' does on {self.arch}, or leave the policy out")

    def _kernel(self, op: Operator, s: Setting) -> None:
        """A kernel of the user's own can be called with what its contract admits."""
        why = self._of_kernel(op, None if s.key == "weights" else contracts.word(s.value))
        if why is None or op.kernel is None:
            return
        listed = contracts.dtypes(op)
        floats = [n for n in (contracts.words(listed.value) if listed is not None else ()) if n in DTYPES and DTYPES[n].is_float]
        other = f"lower it to {floats[0]}, which it admits; " if floats else ""
        help = f"add 'library = {GENERATED}' to the clause, so that code made of its 'compute' runs there, or leave it out of the policy" \
            if op.compute is not None else f"add a 'compute' that says what it means, and 'library = {GENERATED}' to the clause, or leave it out of the policy"
        asked = f"the policy asks for {contracts.describe(s.value)}"
        self.report.error("downgrade", s.span, f"{asked}, but the kernel of '@{op.name}' {why}",
                          [*([Note("its dtypes", listed.span)] if listed is not None else []), Note("the kernel", op.kernel.span)], other + help,
                          About("downgrade", op.name, None, f"the kernel of '@{op.name}' {why}", asked))

    def _of_kernel(self, op: Operator, dtype: str | None) -> str | None:
        """Why the kernel of an operator, if that is what runs, cannot have a dtype."""
        library = self.clause.of.get("library")
        if not runs_kernel(op, self.arch, contracts.words(library.value) if library is not None else None):
            return None
        return why_not(op, dtype, self.clause.word("weights"), self.clause.word("scheme") == "plain")

    def _launched(self) -> None:
        """How a kernel of the user's own is launched, and that it is what runs, is said where it is wrapped."""
        of, kernel = self.clause.of, self.op.kernel
        library = contracts.words(of["library"].value) if "library" in of else None
        if kernel is None or not runs_kernel(self.op, self.arch, library):
            return
        own = next((s for s in kernel.settings if s.key == "block"), None)
        if "block" in of and own is not None:
            asked, said = contracts.describe(of["block"].value), contracts.describe(own.value)
            self._error(of["block"], f"the policy asks for blocks of {asked}, but the kernel of '@{self.op.name}' is launched with {said}",
                        [Note("it says so here", own.span)],
                        "leave 'block' out of the policy, or out of the kernel, whose 'grid' has to fit then")
        if library:
            help = f"write 'library = {GENERATED}', so that code made of its 'compute' runs there" if self.op.compute is not None else \
                f"add a 'compute' that says what it means, of which 'library = {GENERATED}' makes code"
            self._error(of["library"], f"the policy asks for {', '.join(library)}, but '@{self.op.name}' is a kernel of its own",
                        [Note("the kernel", kernel.span)], f"{help}, or leave 'library' out")

    def _inside(self, graph: Operator, s: Setting) -> None:
        """A dtype for all nodes of a graph: something inside has to be lowered by it, and nothing may be unsupported."""
        found = list(leaves(graph, self.operators))
        for op in found:
            self._supported(op, s)
        name = contracts.word(s.value) or ""
        able = [op for op in found if self._can(op, name) and self._of_kernel(op, name) is None]
        if found and not able:
            some = found[0]
            self._error(s, f"nothing in '@{graph.name}' can be lowered to {name}", [Note("an operator inside", some.signature)],
                        "name a dtype that the operators inside have, or drop the policy")

    def _can(self, op: Operator, name: str) -> bool:
        names = admitted(op)
        floats = [n for n in names if n not in DTYPES or DTYPES[n].is_float]
        return bool(floats) if name in CODES and self.clause.word("scheme") != "plain" else name in names or any(n not in DTYPES for n in names)

    # ---------------------------------------------------------------------------------------------------------------- the operator

    def _leaf(self) -> None:
        """What is lowered has a meaning to compute, and sums that its codes fit."""
        of, op = self.clause.of, self.op
        s = of.get("dtype") or of["weights"]
        self._kernel(op, s)
        names = [n for n in admitted(op) if n in DTYPES]
        if "dtype" not in of and names and not any(DTYPES[n].is_float for n in names):
            self._error(s, f"the policy quantises weights to {self.clause.word('weights')}, but '@{op.name}' has no float operand: {', '.join(names)}",
                        [self.declared], "drop the clause: it computes with integers already")
        check_sums(op, self.clause, {}, None, self.report)

    def _lowers_something(self) -> None:
        """A budget is for an error that something makes."""
        budget = self.clause.of.get("budget")
        if budget is None or self.clause.dtypes or "weights" in self.clause.of:
            return
        if self.op.graph is not None:
            inner = (d for x in within(self.op, self.operators) if x is not self.op for d in x.downgrades if parse_arch(d.target) == self.arch)
            if any(s.key in ("dtype", "weights", "precision") for d in inner for s in d.settings or ()):
                return
        if _written_by_a_pass(self.op.name):
            return
        self.report.error("budget", budget.span, "a budget for the error of lowering, and the clause lowers nothing", (),
                          "add 'dtype = i8'" + (", or a dtype for each label" if self.op.graph is not None else "") + ", or leave 'budget' out")

    def _of_results(self) -> list[Setting]:
        """The settings that name the dtype of a node that makes a result and is no graph."""
        if self.op.graph is None:
            return self.clause.dtypes
        alias = {n.name.name: n.of.name for n in self.op.graph.nodes if isinstance(n, Alias)}
        wanted = {alias.get(r.name, r.name) for r in self.op.results}
        last = {n.label: self.operators.get(n.op) for n in self.op.graph.nodes if isinstance(n, Node) and n.label and any(e.name in wanted for e in n.results)}
        return [s for s in self.clause.labels if (op := last.get(s.key)) is not None and op.graph is None and not _already(op, s)]


def _what_it_could_have(name: str, floats: Sequence[str], listed: bool) -> str:
    """What to write where a float dtype is not among those of an operator."""
    if name in CODES:
        return f"leave 'scheme = plain' out, so that values are scaled to {name}, or add {name} to its 'dtypes'"
    narrow = [n for n in floats if DTYPES[n].bits < 32]
    first = f"add {name} to them" if listed else f"give it a type variable in place of {floats[0]}, and list {name} in 'dtypes'"
    return first + (f", or lower to {' or '.join(narrow)}" if listed and narrow else ", or quantise, 'dtype = i8'")


def _already(op: Operator, s: Setting) -> bool:
    name = contracts.word(s.value)
    return name not in CODED and {o.type.dtype for o in op.operands} == {name}


def _written_by_a_pass(name: str) -> bool:
    """Whether `push-policies` made an operator: a graph's budget stands at the nodes that make its results, whether they are lowered or not."""
    return name.rpartition(".")[2].isdigit()
