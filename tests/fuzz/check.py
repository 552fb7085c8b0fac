"""One generated program: round trip, inference a second time, and the same results from every backend.

- The text parses; what it parses to prints, parses to the same module, and prints the same again.
- `infer-types` on its own printed output changes nothing.
- The reference in f32, and the cpu backend after all its passes, give values inside the intervals of `enclosure.py`: integers, bools and whatever is
  exact to the bit, other floats within the stated ulps. The reference in float64 lies inside the loose intervals.
- Where one backend raises `ExecutionError`, all do.

Where a decision hangs on the rounding of floats (`Undecided`), the sample only has to run; it is counted. So are elements that may be anything.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelink_ir.backends.reference.executable import load as load_reference
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir import scalar
from pipelink_ir.ir.diagnostics import ExecutionError, ProgramError, Report
from pipelink_ir.ir.dtypes import DTYPES, F64, DType
from pipelink_ir.ir.nodes import Module, Operand
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes
from tests.fuzz import enclosure, intervals
from tests.fuzz.census import Census
from tests.fuzz.data import Program, arrays

Array = NDArray[Any]
Outcome = dict[str, Array] | ExecutionError


class Differs(AssertionError):
    """What is wrong with a program."""


class NeverInside(Exception):
    """A program that is refused, rightly, for an index that is never inside."""


def check(program: Program, census: Census) -> None:
    """Everything above."""
    module = _round_trip(program.text)
    try:
        front = _passes(program, module, "frontend")
    except NeverInside:
        # A guard may leave but one place, beside which there is nothing: that is an error under any border.
        census.add("outcome", "programs refused for an index that is never inside")
        return
    census.program(module)
    for tag in program.tags:
        census.add("tag", tag)
    again = _passes(program, parse(print_module(front), "again.plir"), "resolve,infer-types")
    if print_module(again) != print_module(front):
        raise Differs(f"infer-types changes what it printed:\n{print_module(front)}\nto:\n{print_module(again)}")
    census.typed(front)
    backends = _Backends(front, _passes(program, module, "cpu"))
    for sample in program.samples:
        given = arrays(program, sample)
        try:
            _compare(backends, given, census)
        except Differs as fault:
            raise Differs(f"{fault}\nsizes {dict(sample.sizes)}, {sample.palette}, seed {sample.seed}, inputs {_show(given)}\n{program.text}") from None


def _show(given: Mapping[str, Array]) -> str:
    return "\n".join(f"%{n}: {a.dtype}{list(a.shape)} = {a.tolist() if a.size <= 64 else '…'}" for n, a in given.items())


def _round_trip(text: str) -> Module:
    module = parse(text, "fuzz.plir")
    printed = print_module(module)
    back = parse(printed, "printed.plir")
    if back != module:
        raise Differs(f"the printed text parses to something else:\n{printed}\nof:\n{text}")
    if print_module(back) != printed:
        raise Differs(f"printing is not a fixed point:\n{printed}\nthen:\n{print_module(back)}")
    return module


def _passes(program: Program, module: Module, passes: str) -> Module:
    report = Report()
    try:
        return run_passes(module, parse_passes(passes), report, (VerifyEach(),))
    except ProgramError as error:
        if all(d.code == "PL2501" and "never inside" in d.message for d in error.diagnostics if d.severity == "error"):
            raise NeverInside from None
        raise Differs(f"refused after {passes}:\n{error}\n{program.text}") from None


class _Backends:
    """The executables of one program."""

    def __init__(self, front: Module, lowered: Module) -> None:
        from pipelink_ir.backends.cpu.executable import load as load_cpu
        name = front.pipelines[0].name
        self.results: tuple[Operand, ...] = front.pipelines[0].results
        self.f32 = load_reference(front, name)
        self.f64 = load_reference(front, name, float64=True)
        self.strict = enclosure.load(front, name)
        self.loose = enclosure.load(front, name, loose=True)
        self.cpu = load_cpu(lowered, name)


def _run(call: Callable[[Mapping[str, Array]], dict[str, Array]], given: Mapping[str, Array]) -> Outcome:
    """Results, or the error that the data cannot be run on. Inputs must not change."""
    before = {n: a.copy() for n, a in given.items()}
    try:
        out: Outcome = call(given)
    except ExecutionError as error:
        out = error
    for n, a in given.items():
        if a.tobytes() != before[n].tobytes():
            raise Differs(f"the input %{n} was written")
    return out


def _enclosed(executable: enclosure.EnclosureExecutable, given: Mapping[str, Array], census: Census) -> Outcome | None:
    try:
        return _run(executable.enclose, given)
    except enclosure.Undecided as why:
        census.add("undecided", str(why))
        return None


def _compare(b: _Backends, given: Mapping[str, Array], census: Census) -> None:
    census.add("outcome", "samples")
    f32, cpu, f64 = _run(b.f32, given), _run(b.cpu, given), _run(b.f64.evaluate, given)
    strict, loose = _enclosed(b.strict, given, census), _enclosed(b.loose, given, census)
    if strict is None:
        census.add("outcome", "samples excluded for a tie")
        return
    for name, outcome in (("reference", f32), ("cpu", cpu)):
        _like(name, outcome, strict, b.results, census if name == "cpu" else None)
    if loose is not None:
        _same_fate("reference in float64", f64, loose)
        if isinstance(loose, dict) and isinstance(f64, dict):
            for result in b.results:
                _inside("reference in float64", result.name, f64[result.name], loose[result.name], None)
    if isinstance(strict, ExecutionError):
        census.add("outcome", "samples that cannot run")


def _like(name: str, outcome: Outcome, strict: Outcome, results: tuple[Operand, ...], census: Census | None) -> None:
    """What a backend makes of a sample is what it may be."""
    _same_fate(name, outcome, strict)
    if isinstance(strict, dict) and isinstance(outcome, dict):
        for result in results:
            dtype = DTYPES[result.type.dtype]
            got = outcome[result.name]
            if got.dtype != dtype.numpy():
                raise Differs(f"{name}: %{result.name} is {got.dtype}, not {dtype}")
            _inside(name, result.name, scalar.array_from_storage(got, dtype), _stored(strict[result.name], dtype), census)


def lowered(program: Program) -> tuple[Module, Module]:
    """A program after inference, and as a backend gets it."""
    module = parse(program.text, "fuzz.plir")
    return _passes(program, module, "frontend"), _passes(program, module, "cpu")


def check_backend(name: str, run: Callable[[Mapping[str, Array]], dict[str, Array]], program: Program, front: Module, census: Census) -> None:
    """One more backend, for which `check` is too much: its results alone."""
    strict_of = enclosure.load(front, front.pipelines[0].name)
    for sample in program.samples:
        given = arrays(program, sample)
        census.add("outcome", "samples")
        strict = _enclosed(strict_of, given, census)
        try:
            outcome = _run(run, given)
            if strict is not None:
                _like(name, outcome, strict, front.pipelines[0].results, census)
        except AssertionError as fault:
            raise Differs(f"{fault}\nsizes {dict(sample.sizes)}, {sample.palette}, seed {sample.seed}, inputs {_show(given)}\n{program.text}") from None


def _stored(z: Array, dtype: DType) -> Array:
    """As the result holds it: a value that went through an edge has been rounded already."""
    return intervals.to_float(z, dtype, False) if dtype.is_float and dtype is not F64 else z


def _same_fate(name: str, outcome: Outcome, expected: Outcome) -> None:
    """Either both run or neither does, for the same reason."""
    if isinstance(outcome, ExecutionError) and isinstance(expected, dict):
        raise Differs(f"{name} fails where it should not: {outcome}")
    if isinstance(outcome, dict) and isinstance(expected, ExecutionError):
        raise Differs(f"{name} gives a result instead of the error: {expected}")
    if isinstance(outcome, ExecutionError) and isinstance(expected, ExecutionError):
        codes = {d.code for d in outcome.diagnostics}, {d.code for d in expected.diagnostics}
        if codes[0] != codes[1]:
            raise Differs(f"{name} fails with {outcome}\ninstead of {expected}")


def _inside(name: str, result: str, got: Array, allowed: Array, census: Census | None) -> None:
    """Every element in its interval, or equal."""
    if got.shape != allowed.shape:
        raise Differs(f"{name}: %{result} has the shape {got.shape}, not {allowed.shape}")
    if allowed.dtype.kind != "c":
        wrong = np.asarray(got != allowed)
    else:
        low, high, value = allowed.real, allowed.imag, got.astype(np.float64)
        unknown, nan = intervals.is_unknown(allowed), intervals.is_nan(allowed)
        sign = (low == 0) & (high == 0) & (np.signbit(low) == np.signbit(high)) & (np.signbit(value) != np.signbit(low))
        wrong = np.asarray(~unknown & np.where(nan, ~np.isnan(value), ~((low <= value) & (value <= high)) | sign))
        if census is not None:
            census.add("elements", "exact", int((intervals.is_point(allowed)).sum()))
            census.add("elements", "in an interval", int((~unknown & ~intervals.is_point(allowed)).sum()))
            census.add("elements", "anything", int(unknown.sum()))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        want = allowed[at]
        said = f"in [{want.real!r}, {want.imag!r}]" if allowed.dtype.kind == "c" else repr(want)
        raise Differs(f"{name}: %{result}{list(at)} is {got[at]!r}, should be {said} ({int(wrong.sum())} of {wrong.size} elements)")
