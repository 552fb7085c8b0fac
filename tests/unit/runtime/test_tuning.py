"""Schedules that are measured: what is tried, what is checked before anything is timed, what is kept, and what a compile makes of it. A clock of the test's own
stands for the device, so nothing here depends on how long anything takes."""
from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import ProgramError, UsageError
from pipelink_ir.passes.manager import parse_passes
from pipelink_ir.passes.scheduling.identity import Identity, identity
from pipelink_ir.passes.scheduling.tuned import Entry, value_of
from pipelink_ir.passes.scheduling.tuned_file import parse_tuned, read_tuned, tuned_text
from pipelink_ir.passes.scheduling.tuned_lookup import typed_for
from pipelink_ir.runtime.compile import tune
from pipelink_ir.runtime.sources import read_program
from pipelink_ir.runtime.targets import parse_target
from pipelink_ir.runtime.tuning import search as searching
from pipelink_ir.runtime.tuning.files import kept
from pipelink_ir.runtime.tuning.search import Outcome
from pipelink_ir.runtime.tuning.turns import better, in_turns
from pipelink_ir.version import __version__
from tests.unit.runtime.programs import SHARES

RENAMED = """op @other(%a: tensor<ZxWxf32>) -> (%b: tensor<ZxWxf32>) {
  compute { %b[r, c] = %v[r, c] / %q[r]
            %q[i] = sum[d < W](%v[i, d])
            %v[r, c] = exp(%a[r, c] - %t[r])
            %t[r] = max[e < W](%a[r, e]) }
}
pipeline @q(%in: tensor<ZxWxf32>) -> (%b: tensor<ZxWxf32>) { %b = @other(%in) }
"""
PLAIN = """op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2 * %x[n] + 1 } }
pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }
"""


def who(text: str) -> Identity:
    return identity(typed_for(next(o for o in pl.compile(text, target="reference").module.operators)))


def shares(x: Any) -> Any:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(-1, keepdims=True)


# ---------------------------------------------------------------------------------------------------------------------------- identity


def test_names_and_order_are_no_part_of_an_operator() -> None:
    a, b = who(SHARES), who(RENAMED)
    assert a.digest == b.digest
    assert {a.labels[x]: x for x in "mesy"}.keys() == {b.labels[x]: x for x in "tvqb"}.keys()
    assert [a.labels[x] for x in "mesy"] == [b.labels[x] for x in "tvqb"]


@pytest.mark.parametrize(("old", "new"), [
    ("max[k < K]", "min[k < K]"), ("exp(", "expm1("), ("/ %s[n]", "* %s[n]"), ("f32>) {", "f16>) {"), ("NxKxf32>) -> (%y", "NxKxf16>) -> (%y"),
    ("%e[n, k] / %s[n]", "%e[n, k] / %s[n] + 1")])
def test_what_an_operator_computes_is(old: str, new: str) -> None:
    assert who(SHARES).digest != who(SHARES.replace(old, new)).digest


def test_what_a_schedule_says_is_not() -> None:
    told = SHARES.replace("compute {", "schedule { %e { place = buffer } }\n  compute {", 1)
    assert who(SHARES).digest == who(told).digest


def test_recurrences_that_read_each_other() -> None:
    text = """op @f(%x: tensor<Txf32>) -> (%y: tensor<Txf32>) {
  where T >= 1
  compute { %a[0] = %x[0]
            %b[0] = 0
            %a[t < T] = %b[t-1] + %x[t]
            %b[t < T] = 2 * %a[t-1]
            %y[t] = %a[t] + %b[t] }
}
pipeline @p(%x: tensor<Txf32>) -> (%y: tensor<Txf32>) { %y = @f(%x) }
"""
    swapped = text.replace("%a", "%q").replace("%b", "%a").replace("%q", "%b")
    assert who(text).digest == who(swapped).digest
    assert who(text).labels["a"] == who(swapped).labels["b"]
    assert who(text).digest != who(text.replace("2 * %a", "3 * %a")).digest


# ------------------------------------------------------------------------------------------------------------------------------- files


ENTRY = Entry("a" * 32, "?x?", "cuda-emulated", __version__, {"r0": {"map": "block(0)", "beside": "%d1"}, "d0": {"place": "buffer"}}, "shares: 1", "N=3", "GPU", 0.2, 0.1)


def test_what_is_written_reads_back() -> None:
    for entries in ([ENTRY, replace(ENTRY, schedule={}, shapes="3x4, 5")], []):
        assert [replace(e, span=ENTRY.span) for e in parse_tuned(tuned_text(entries).encode(), "x")] == entries


@pytest.mark.parametrize(("text", "place", "said"), [
    ("", "1:1", "the file is empty"), ("tuned: 1\n", "1:1", "'entries' is missing"), ("tuned: 2\nentries: []\n", "1:8", "the version of the format is 1"),
    ("tuned: [1\n", "2:1", "this is not YAML"), ("tuned: 1\nentries:\n- 3\n", "3:3", "an entry is a table ('key: value'), not one value"),
    ("tuned: 1\nentries:\n- operator: a\n  shapes: a\n  arch: a\n  compiler: a\n  schedule: {r0: {mop: 3}}\n", "7:19", "a definition has no key 'mop'"),
    ("tuned: 1\nentries:\n- operator: a\n  shapes: a\n  arch: a\n  compiler: a\n  schedule: {r0: {map: a b}}\n", "7:24", "'a b' is no value of 'map'"),
    ("tuned: 1\nentries:\n- operator: a\n  shapes: a\n  arch: a\n  compiler: a\n  ms: fast\n  schedule: {}\n", "7:7", "'ms', in milliseconds, is a finite number, not 'fast'"),
    ("tuned: 1\nentries:\n- operator: a\n  shapes: a\n  arch: a\n  schedule: {}\n", "3:3", "an entry without 'compiler'"),
    ("tuned: 1\ntuned: 1\nentries: []\n", "2:1", "'tuned' is written twice")])
def test_faults_have_places(text: str, place: str, said: str) -> None:
    with pytest.raises(ProgramError) as failed:
        parse_tuned(text.encode(), "x.yaml")
    first = failed.value.diagnostics[0]
    assert first.code == "PL9103"
    assert str(first.span).startswith(f"x.yaml:{place}")
    assert said in first.message


def test_values() -> None:
    assert [value_of(t) is None for t in ("grid", "block(0, 1)", "tile(8,16)", "128", "%d3", "[grid, block(0, 1)]", "a b", "x = 3", "%q", "block(n)", "")] == [
        False] * 6 + [True] * 5


# ------------------------------------------------------------------------------------------------------------------------------ search


@dataclass
class Fake:
    """A clock that runs what it is given, and tells a time by the name of the candidate."""

    ms: Callable[[str], float]
    timed: list[str] = field(default_factory=list)

    def __call__(self, call: Callable[[], Any], what: str) -> float:
        call()
        self.timed.append(what)
        return 1e-3 * self.ms(what)


def tuned(text: str, clock: Fake, target: str = "cuda-emulated", **sizes: int) -> Outcome:
    t = parse_target(target)
    return tune(parse(text, "p.plir"), t, steps=parse_passes(t.passes), sizes=sizes, clock=clock)


def by_names(**ms: float) -> Fake:
    return Fake(lambda what: next((v for k, v in ms.items() if k in what), 1.0))


def test_the_best_schedule_is_kept_and_used(tmp_path: Path) -> None:
    program = tmp_path / "shares.plir"
    program.write_text(SHARES)
    outcome = tuned(SHARES, by_names(threads=1.5, grid=0.7), N=5, K=70)
    assert outcome.arch == "cuda-emulated"
    assert outcome.entries[0].schedule == {"r0": {"map": "grid"}}
    assert outcome.entries[0].sizes == "N=5, K=70"
    assert [t.what for t in outcome.found[0].tried if t.status == "best"] == ["%y: map = grid"]
    assert outcome.found[0].checked == "the reference and the default schedule"
    path = kept(outcome.entries, str(program), None, outcome.arch)
    assert path == str(tmp_path / "shares.tuned.yaml")
    p, plain = pl.compile(program, target="cuda-emulated"), pl.compile(program, target="cuda-emulated", tuned="off")
    assert "%y { map = grid }" in p.as_text("plir")
    assert "%y { map = block(n) }" in plain.as_text("plir")
    assert "its schedule is the tuner's, 0.7 ms instead of 1 ms by the default one, measured on cuda-emulated (shares.tuned.yaml)" in p.explain()
    assert "tuner" not in plain.explain()
    x = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float32)
    np.testing.assert_allclose(p(x=x).y, shares(x), rtol=1e-5)
    # Another program that computes the same has it too.
    other = pl.compile(RENAMED, target="cuda-emulated", tuned=path)
    assert "%b { map = grid }" in other.as_text("plir")
    np.testing.assert_allclose(other(**{"in": x}).b, shares(x), rtol=1e-5)


def test_what_is_not_better_by_more_than_chance_is_refused() -> None:
    draw = random.Random(3)
    outcome = tuned(SHARES, Fake(lambda _: draw.uniform(0.9, 1.1)), N=5, K=70)
    assert outcome.entries[0].schedule == {}
    assert all(t.status != "best" for t in outcome.found[0].tried)
    outcome = tuned(SHARES, by_names(grid=0.99), N=5, K=70)  # sure, and too little
    assert outcome.entries[0].schedule == {}


def test_changes_that_are_good_each_are_tried_together() -> None:
    def ms(what: str) -> float:
        return 1.0 - 0.2 * ("threads = 128" in what) - 0.1 * ("flight = 4" in what)
    found = tuned(PLAIN, Fake(ms), N=100).found[0]
    assert found.schedule == {"r0": {"threads": "128", "flight": "4"}}
    assert found.ms == pytest.approx(0.7)


def test_numbers_come_before_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate whose numbers are wrong is told, and never timed."""
    real = searching.planned

    class Wrong:
        def __init__(self, run: Any) -> None:
            self.run = run

        def __call__(self, **arrays: Any) -> Any:
            return {n: a * np.float32(1.001) for n, a in self.run(**arrays).items()}

    def planned(module: Any, *rest: Any) -> Any:
        made = real(module, *rest)
        text = str(module.operators[0].sections)
        return Wrong(made) if "'threads'" in text and "value=512" in text else made
    monkeypatch.setattr(searching, "planned", planned)
    clock = by_names(**{"threads = 512": 0.1, "threads = 128": 0.5})
    outcome = tuned(PLAIN, clock, N=100)
    wrong = [t for t in outcome.found[0].tried if t.status.startswith("wrong: '%y' at [")]
    assert [t.what for t in wrong] == ["%y: threads = 512"]
    assert "%y: threads = 512" not in clock.timed
    assert outcome.found[0].schedule["r0"]["threads"] == "128"


def test_equal_operators_are_measured_once_and_shapes_are_kept_apart() -> None:
    text = PLAIN.replace("{ %y = @f(%x) }", "{\n  %a = @f(%x) {}\n  %y = @f(%a)\n}").replace(" {}", "")
    t = parse_target("cuda-emulated")
    steps = [s for s in parse_passes(t.passes) if s.name != "fuse"]
    outcome = tune(parse(text.replace("Nxf32", "40xf32"), "p.plir"), t, steps=steps, clock=by_names())
    assert len(outcome.found) == 1
    assert [e.shapes for e in outcome.entries] == ["40"]


def test_the_cpu_too() -> None:
    outcome = tuned(SHARES, by_names(**{"%e: place = buffer": 0.5}), "cpu", N=5, K=70)
    assert outcome.arch == "cpu"
    assert list(outcome.entries[0].schedule.values()) == [{"place": "buffer"}]


@pytest.mark.parametrize("target", ["sm_90", "reference"])
def test_where_nothing_can_be_measured(target: str) -> None:
    with pytest.raises(UsageError, match="schedules are measured where they run"):
        tuned(PLAIN, by_names(), target, N=3)


def test_what_the_program_says_is_not_tried_otherwise() -> None:
    text = SHARES.replace("compute {", "schedule { target = cuda, %y { map = block(n) } }\n  compute {", 1)
    clock = by_names()
    tuned(text, clock, N=5, K=70)
    assert not any(what.startswith("%y: map") for what in clock.timed)


@pytest.mark.parametrize(("case", "target"), [("rows", "cpu"), ("scans", "cpu"), ("edge_gamma", "cpu"), ("ragged", "cpu"), ("scans", "cuda-emulated")])
def test_every_candidate_computes_the_same(case: str, target: str) -> None:
    """A clock for which everything is better than the default: changes are tried together, too."""
    folder = Path(__file__).resolve().parents[2] / "cases"
    module, arrays, t = read_program(str(folder / f"{case}.plir")), np.load(folder / f"{case}.npz"), parse_target(target)
    given = {name.removeprefix("in."): arrays[name] for name in arrays.files if name.startswith("in.")}
    clock = Fake(lambda what: 1.0 if what else 1.1)
    outcome = tune(module, t, steps=parse_passes(t.passes), given=given, clock=clock)
    tried = [x for f in outcome.found for x in f.tried]
    assert tried
    assert {x.status.partition(":")[0] for x in tried} <= {"best", "better", "not better", "refused"}


# ----------------------------------------------------------------------------------------------------------------- entries in a compile


def explained(tmp_path: Path, text: str = SHARES, **changes: Any) -> tuple[str, str]:
    entry = replace(ENTRY, **{"operator": who(SHARES).digest, "schedule": {"r0": {"map": "grid"}}, **changes})
    (tmp_path / "t.yaml").write_text(tuned_text([entry]))
    p = pl.compile(text, target="cuda-emulated", tuned=tmp_path / "t.yaml")
    x = np.random.default_rng(0).standard_normal((3, 65)).astype(np.float32)
    np.testing.assert_allclose(p(x=x).y, shares(x), rtol=1e-5)
    return p.explain(), p.as_text("plir")


@pytest.mark.parametrize(("changes", "said"), [
    ({"arch": "sm_80"}, "it is for sm_80, not for cuda-emulated"), ({"compiler": "0.0.1"}, f"it was measured by version 0.0.1, this is {__version__}"),
    ({"shapes": "3x65"}, "it was tuned for other shapes"), ({"schedule": {"d7": {"place": "buffer"}}}, "there is no definition 'd7'"),
    ({"schedule": {"r0": {"map": "mma"}}}, "is nothing that a kernel of the kind 'mma' computes"),
    ({"schedule": {"r0": {"threads": "100"}}}, "it cannot be followed"), ({"schedule": {"r0": {"place": "%d9"}}}, "there is no definition 'd9'"),
    ({"operator": "b" * 32}, "1 tuned schedule of t.yaml belongs to no operator here")])
def test_what_is_out_of_date_is_passed_over(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    ledger, text = explained(tmp_path, **changes)
    assert said in ledger
    assert "declined: " in ledger
    assert "%y { map = block(n) }" in text


def test_what_the_program_says_wins(tmp_path: Path) -> None:
    own = SHARES.replace("compute {", "schedule { target = cuda, %y { map = block(n) } }\n  compute {", 1)
    _, text = explained(tmp_path, own)
    assert "%y { map = block(n) }" in text
    _, text = explained(tmp_path, own, schedule={"r0": {"map": "grid"}, "d0": {"place": "buffer"}})
    assert "%y { map = block(n) }" in text
    assert "%m { place = buffer" in text


def test_a_program_that_is_a_text_is_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(searching, "HostClock", lambda: by_names(grid=0.5))
    p = pl.compile(SHARES, target="cuda-emulated", tune={"N": 4, "K": 70})
    assert "%y { map = grid }" in p.as_text("plir")
    assert [e.name for e in read_tuned(str(tmp_path / "tuned" / "cuda-emulated.yaml"))] == ["shares"]
    assert "%b { map = grid }" in pl.compile(RENAMED, target="cuda-emulated").as_text("plir")
    assert "%y { map = block(n) }" in pl.compile(SHARES, target="cuda-emulated", tuned="off").as_text("plir")
    with pytest.raises(UsageError, match="does not go with it"):
        pl.compile(SHARES, target="cuda-emulated", tune={"N": 4, "K": 70}, tuned="off")
    # What other programs keep there is nothing to talk about.
    assert "tuned" not in pl.compile(PLAIN, target="cuda-emulated").explain()


def test_a_file_is_completed(tmp_path: Path) -> None:
    path = str(tmp_path / "t.yaml")
    kept([ENTRY, replace(ENTRY, arch="sm_80")], None, path, "x")
    kept([replace(ENTRY, ms=0.05)], None, path, "x")
    assert [(e.arch, e.ms) for e in read_tuned(path)] == [("sm_80", 0.1), ("cuda-emulated", 0.05)]


# ------------------------------------------------------------------------------------------------------------------------------- turns


def test_turns_leave_out_what_is_far_behind() -> None:
    times = {"": 1.0, "a": 0.9, "far": 1.3, "hopeless": 5.0}
    took = in_turns(Fake(lambda what: times[what]), dict.fromkeys(times, lambda: None), 15)
    assert {n: len(t) for n, t in took.items()} == {"": 15, "a": 15, "far": 4, "hopeless": 1}


def test_better_is_by_more_than_chance() -> None:
    assert better([0.9] * 15, [1.0] * 15)
    assert not better([0.99] * 15, [1.0] * 15)
    assert not better([0.5] * 5, [1.0] * 5)
    assert not better([0.9, 1.2] * 8, [1.0] * 16)
