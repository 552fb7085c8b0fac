"""`pipelinkc verify`: a hand-written kernel against the `compute` beside it, on random and on edge inputs.

Each operator with a `kernel cuda` is run by itself, for some of the dtypes and words that it admits and for sizes that its `where` admits: one element, odd
ones, and some beyond a block. What the kernel gives is compared with what the reference makes of `compute`, in the operator's own dtypes and in float64:
an element is right if it is near to either, and an infinity or a NaN where one of them has it.
"""
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import Any

from pipelink_ir.ir.contracts import setting, word
from pipelink_ir.ir.diagnostics import ExecutionError, Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate, evaluate_condition
from pipelink_ir.ir.nodes import Attribute, Const, Edge, Expr, FloatLit, IntLit, Module, Node, Operand, Operator, Pipeline, Setting
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.contracts.edges import declared_range

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 48, 64, 100, 128, 257)
LARGE = 1 << 18
"""Elements of the largest array."""

BINDINGS = 4
"""Ways to call an operator (dtypes, words) that are tried."""

TOLERANCE = {"f64": (1e-9, 1e-12), "f32": (2e-5, 1e-6), "f16": (2e-3, 1e-3), "bf16": (1.6e-2, 1e-2), "f8e4m3": (0.13, 0.02), "f8e5m2": (0.26, 0.02)}
"""(relative, absolute) by dtype; integers and bools are exact."""


@dataclass(slots=True)
class Verified:
    """What came of one operator: the number of runs, the largest error as a part of what is allowed, or why there was nothing to compare."""

    operator: str
    runs: int = 0
    worst: float = 0.0
    skipped: str | None = None
    refused: int = 0
    """Inputs that `compute` itself cannot be run on."""


@dataclass(slots=True)
class Case:
    """One way to run an operator: sizes, attributes, and how values are drawn."""

    sizes: dict[str, int]
    attributes: dict[str, int | float | bool]
    palette: str
    seed: int

    def __str__(self) -> str:
        given = ", ".join(f"{n} = {v}" for n, v in {**self.sizes, **self.attributes}.items())
        return f"{self.palette} values, seed {self.seed}" + (f", {given}" if given else "")


@dataclass(slots=True)
class Verification:
    """The operators of a module (after `resolve`) that have kernels. `load` makes an executable of a module and the name of a pipeline."""

    module: Module
    load: Callable[[Module, str], Callable[[Mapping[str, Any]], Mapping[str, Any]]]
    runs: int = 20
    seed: int = 0
    report: Report = field(default_factory=Report)

    def all(self) -> Iterator[Verified]:
        """Each operator in turn; what differs is in `report`."""
        for op in self.module.operators:
            if op.kernel is not None:
                yield self.operator(op)

    def operator(self, op: Operator) -> Verified:
        """One operator."""
        from pipelink_ir.passes.infer.generic import samples
        from pipelink_ir.passes.infer.specialise import Binding, specialise
        out = Verified(op.name)
        if op.compute is None:
            out.skipped = "it has no 'compute' to compare with"
            return out
        for binding in islice(samples(op), BINDINGS):
            example = op if binding == Binding() else specialise(op, binding, op.name)
            if not self._example(op, example, out):
                return out
        if not out.runs and out.skipped is None:
            out.skipped = "no sizes were found that its 'where' admits"
        return out

    def _example(self, op: Operator, example: Operator, out: Verified) -> bool:
        """One way to call it; False as soon as a difference was found."""
        draw = random.Random(f"{self.seed}:{op.name}")
        for number in range(self.runs):
            case = draw_case(example, draw, number)
            if case is None:
                continue
            try:
                if not self._run(op, example, case, out):
                    return False
            except Undrawn:
                continue
        return True

    def _run(self, op: Operator, example: Operator, case: Case, out: Verified) -> bool:
        kernel, plain = (prepared(e, case) for e in (example, replace(example, kernel=None)))
        inputs = draw_inputs(example, case)
        from pipelink_ir.backends.reference.executable import load as load_reference
        try:
            wanted = [load_reference(plain, "verify", float64=wide)(inputs) for wide in (False, True)]
        except ExecutionError:
            out.refused += 1
            return True
        got = self.load(kernel, "verify")(inputs)
        for result in example.results:
            dtype = DTYPES[result.type.dtype]
            fault, worst = compare(got[result.name], [w[result.name] for w in wanted], dtype)
            out.worst = max(out.worst, worst)
            if fault is not None:
                self._differs(op, result, case, fault)
                return False
        out.runs += 1
        return True

    def _differs(self, op: Operator, result: Operand, case: Case, fault: str) -> None:
        assert op.kernel is not None
        assert op.compute is not None
        self.report.error("PL6301", op.kernel.span, f"the kernel of '@{op.name}' gives another '%{result.name}' than its 'compute': {fault} ({case})",
                          [Note("what it means is said here", op.compute.span)], "correct the one that is wrong; the same seed gives the same inputs again")


class Undrawn(Exception):
    """Sizes for which there is nothing to run."""


# ------------------------------------------------------------------------------------------------------------------- sizes, attributes


def draw_case(op: Operator, draw: random.Random, number: int) -> Case | None:
    """Sizes and attributes that the operator admits, None if none are found."""
    symbols = list(dict.fromkeys(n for o in op.operands for d in o.type.dims for n in sorted(names_in(d))))
    dims = [a.name for a in op.attributes if a.type == "dim"]
    scalars = [a for a in op.attributes if a.type in DTYPES]
    palette = ("random", "edge", "small")[number % 3]
    for attempt in range(400):
        step = (1, 1, 2, 4, 8, 16, 32, 64)[attempt % 8]
        pool = SIZES[:4] if number < 2 else SIZES
        sizes = {s: step * draw.choice(pool) for s in dict.fromkeys((*symbols, *dims))}
        attributes = {a.name: _value(a, draw, attempt) for a in scalars}
        if _admits(op, {**sizes, **attributes}):
            return Case(sizes, attributes, palette, draw.randrange(1 << 30))
    return None


def _value(a: Attribute, draw: random.Random, attempt: int) -> int | float | bool:
    dtype = DTYPES[a.type]
    if a.default is not None and attempt % 2 == 0:
        try:
            return evaluate(a.default, {})
        except CannotEvaluate:
            pass
    if dtype.name == "bool":
        return draw.random() < 0.5
    return draw.randint(0, 5) if dtype.is_int else draw.choice((0.0, 0.5, 1.0, 1.7, 2.2, -1.0))


def _admits(op: Operator, env: Mapping[str, int | float | bool]) -> bool:
    for o in (*op.operands, *op.results):
        try:
            shape = [evaluate(d, env) for d in o.type.dims]
        except CannotEvaluate:
            return False
        if any(not isinstance(n, int) or n < 1 for n in shape) or prod(shape) > LARGE:
            return False
    try:
        return all(evaluate_condition(w, env) for w in op.where)
    except CannotEvaluate:
        return True  # of words and dtypes, which are decided


def prepared(op: Operator, case: Case) -> Module:
    """A pipeline of this operator alone, for these sizes, through the passes that every backend needs."""
    from pipelink_ir.passes.manager import parse_passes, run_passes
    env = {**case.sizes, **case.attributes}

    def concrete(o: Operand) -> Operand:
        return replace(o, type=replace(o.type, dims=tuple(IntLit(int(evaluate(d, env))) for d in o.type.dims)))

    attrs = tuple(Setting(a.name, _literal(env[a.name])) for a in op.attributes if a.name in env)
    node = Node(tuple(Edge(r.name) for r in op.results), op.name, tuple(Edge(o.name) for o in op.operands), attrs, span=op.span, op_span=op.name_span)
    pipeline = Pipeline("verify", tuple(map(concrete, op.operands)), tuple(map(concrete, op.results)), (node,), span=op.span, name_span=op.name_span)
    report = Report()
    module = run_passes(Module((op, pipeline)), parse_passes("resolve,infer-types,flatten"), report)
    return module


def _literal(value: int | float | bool) -> Expr:
    if isinstance(value, bool):
        return Const("true" if value else "false")
    return IntLit(value) if isinstance(value, int) else FloatLit(value)


# -------------------------------------------------------------------------------------------------------------------------- values


def draw_inputs(op: Operator, case: Case) -> dict[str, Any]:
    """An array for each operand, within what the operator asks of its values."""
    import numpy as np
    chance = np.random.default_rng(case.seed)
    out: dict[str, Any] = {}
    for o in op.operands:
        shape = tuple(int(evaluate(d, {**case.sizes, **case.attributes})) for d in o.type.dims)
        out[o.name] = _values(op, o, DTYPES[o.type.dtype], shape, case.palette, chance)
    return out


def _values(op: Operator, o: Operand, dtype: DType, shape: tuple[int, ...], palette: str, chance: Any) -> Any:
    import numpy as np
    kind = dtype.numpy()
    found = setting(op, "semantic", "range", o.name)
    finite = setting(op, "semantic", "finite", o.name)
    asked = declared_range(found.setting) if found is not None else None
    lo, hi = (asked.lo, asked.hi) if asked is not None else (None, None)
    if dtype.name == "bool":
        return chance.random(shape) < 0.5
    if dtype.is_int:
        low, high = (dtype.lowest, dtype.highest) if palette == "edge" else (max(dtype.lowest, -4), 20) if palette == "random" else (0, 3)
        low, high = (low if lo is None else max(low, int(lo))), (high if hi is None else min(high, int(hi)))
        return chance.integers(low, max(low, high), shape, dtype=kind, endpoint=True)
    wide = chance.standard_normal(shape) if palette != "small" else chance.integers(-3, 4, shape).astype(np.float64)
    if palette == "edge" and wide.size:
        special = [0.0, -0.0, 1.0, -1.0, 1e-3, 1e4]
        if lo is None and (finite is None or word(finite.setting.value) != "true"):
            special += [np.inf, -np.inf, np.nan]
        places = chance.random(shape) < 0.2
        wide = np.where(places, chance.choice(special, shape), wide)
    if lo is not None and hi is not None:
        wide = np.clip(lo + (hi - lo) * (0.5 + 0.3 * wide), lo, hi)
    with np.errstate(all="ignore"):
        return wide.astype(kind)


# ------------------------------------------------------------------------------------------------------------------------- comparing


def compare(got: Any, wanted: list[Any], dtype: DType) -> tuple[str | None, float]:
    """What is wrong, and how far into the tolerance the largest error is. `wanted` are results in the operator's own dtypes, then in float64."""
    import numpy as np
    if got.shape != wanted[0].shape:
        return f"its shape is {list(got.shape)}, not {list(wanted[0].shape)}", 0.0
    if not dtype.is_float:
        wrong = got != wanted[0]
        return (_first(got, wanted[0], wrong), 0.0) if wrong.any() else (None, 0.0)
    rtol, atol = TOLERANCE[dtype.name]
    g = got.astype(np.float64)
    share = np.full(g.shape, np.inf)
    for w in (x.astype(np.float64) for x in wanted):
        with np.errstate(all="ignore"):
            same = (g == w) | (np.isnan(g) & np.isnan(w))
            near = np.where(np.isfinite(w) & np.isfinite(g), np.abs(g - w) / (atol + rtol * np.abs(w)), np.inf)
            share = np.minimum(share, np.where(same, 0.0, near))
    wrong = ~(share <= 1)
    return (_first(got, wanted[0], wrong), 0.0) if wrong.any() else (None, float(share.max()) if share.size else 0.0)


def _first(got: Any, want: Any, wrong: Any) -> str:
    import numpy as np
    place = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    count = int(wrong.sum())
    more = f", and {count - 1} more of {wrong.size} differ" if count > 1 else ""
    return f"at {list(place)} it is {got[place]} instead of {want[place]}{more}"


def chosen(module: Module, names: list[str]) -> Module:
    """The module with the operators of these names alone. Raises `UsageError` for a name that has no kernel."""
    from pipelink_ir.ir.diagnostics import UsageError
    have = [o.name for o in module.operators if o.kernel is not None]
    for name in (n.removeprefix("@") for n in names):
        if name not in have:
            near = did_you_mean(name, have, "@") or "there are " + (", ".join(have) or "none")
            raise UsageError(f"there is no operator '@{name}' with a kernel; {near}")
    wanted = {n.removeprefix("@") for n in names}
    return replace(module, items=tuple(i for i in module.items if not isinstance(i, Operator) or not wanted or i.name in wanted))

