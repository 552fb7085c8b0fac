"""Policies of graphs and of the project handed to the operators inside: which one counts where, shared copies, linear time."""
from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import load
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report, UsageError
from pipelink_ir.ir.nodes import Module, Node, Operator
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes, step
from pipelink_ir.passes.precision.labels import below, named

CASES = Path(__file__).parents[2] / "cases"
LINEAR = """op @linear(%x: tensor<NxKxT>, %w: tensor<KxKxT>) -> (%y: tensor<NxKxT>) {
  memory { dtypes = [f16, f32] }
  OWN
  compute { %y[n, j] = sum[k < K](%x[n, k] * %w[k, j]) }
}
op @only32(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = 2 * %x[n, k] } }
op @mlp(%x: tensor<NxKxf32>, %w: tensor<KxKxf32>) -> (%y: tensor<NxKxf32>) {
  MLP
  graph {
    %h = @linear(%x, %w) as up
    %a = @only32(%h)
    %y = @linear(%a, %w) as down
  }
}
op @tower(%x: tensor<NxKxf32>, %w: tensor<KxKxf32>) -> (%y: tensor<NxKxf32>) {
  TOWER
  graph {
    %h = @mlp(%x, %w) as first
    %i = @linear(%h, %w)
    %y = @mlp(%i, %w) as second
  }
}
pipeline @p(%x: tensor<NxKxf32>, param %w: tensor<KxKxf32>) -> (%y: tensor<NxKxf32>) {
  %y = @tower(%x, %w) as t
}
"""


def program(own: str = "", mlp: str = "", tower: str = "") -> str:
    clauses = {"OWN": own, "MLP": mlp, "TOWER": tower}
    text = LINEAR
    for word, clause in clauses.items():
        text = text.replace(word, f"downgrade sm_75 {{ {clause} }}" if clause else "")
    return text


def run(text: str, passes: str) -> Module:
    return run_passes(parse(text, "net.plir"), parse_passes(passes), Report(), [VerifyEach()])


def pushed(text: str, *policies: str, arch: str = "sm_75") -> Module:
    steps = (*parse_passes("frontend"), step("push-policies", arch=arch, policies=policies))
    return run_passes(parse(text, "net.plir"), steps, Report(), [VerifyEach()])


def clauses(m: Module, arch: str = "sm_75") -> dict[str, str]:
    """The clause of every node of the flattened pipeline, by label or result."""
    operators = {o.name: o for o in m.operators}
    flat = run_passes(m, parse_passes("flatten"), Report())
    return {n.label or n.results[0].name: clause(operators[n.op], arch) for n in flat.pipelines[0].nodes if isinstance(n, Node)}


def clause(op: Operator, arch: str = "sm_75") -> str:
    found = next((d for d in op.downgrades if d.target == arch), None)
    if found is None:
        return ""
    text = print_module(Module((Operator("o", (), (), downgrades=(found,)),)))
    return text.split("{", 2)[2].split("}")[0].strip()


INSIDE = ("t.first.up", "t.first.a", "t.first.down", "t.i", "t.second.up", "t.second.a", "t.second.down")


@pytest.mark.parametrize(("own", "mlp", "tower", "policies", "expected"), [
    # the graph's dtype reaches everything that has it
    ("", "", "dtype = i8", (), ["dtype = i8"] * 7),
    # float dtypes pass over operators that do not list them
    ("", "", "dtype = f16", (), ["dtype = f16", "", "dtype = f16", "dtype = f16", "dtype = f16", "", "dtype = f16"]),
    # the innermost graph counts, an operator's own clause before any graph
    ("", "dtype = i8", "dtype = f16", (), ["dtype = i8"] * 3 + ["dtype = f16"] + ["dtype = i8"] * 3),
    ("dtype = f16", "dtype = i8", "", (), ["dtype = f16", "dtype = i8", "dtype = f16", "dtype = f16", "dtype = f16", "dtype = i8", "dtype = f16"]),
    # labels: those of the outermost graph first, a longer one before a shorter one, and before the operator's own clause
    ("", "", "precision = mixed, first = i8, first.down = f16, second.up = f16", (), ["dtype = i8", "dtype = i8", "dtype = f16", "", "dtype = f16", "", ""]),
    ("", "precision = mixed, up = f16", "precision = mixed, first = i8", (), ["dtype = i8", "dtype = i8", "dtype = i8", "", "dtype = f16", "", ""]),
    ("dtype = f16, block = [64, 64]", "precision = mixed, up = i8", "", (),
     ["dtype = i8, block = [64, 64]", "", "dtype = f16, block = [64, 64]"] + ["dtype = f16, block = [64, 64]"]
     + ["dtype = i8, block = [64, 64]", "", "dtype = f16, block = [64, 64]"]),
    # keys go with the dtype, as far as they speak of it
    ("", "precision = mixed, up = i8, down = f16, scheme = affine, ranges = dynamic, weights = i4, granularity = block(32), force = true", "", (),
     ["dtype = i8, scheme = affine, ranges = dynamic, weights = i4, granularity = block(32), force = true", "",
      "dtype = f16, weights = i4, granularity = block(32), force = true", ""]
     + ["dtype = i8, scheme = affine, ranges = dynamic, weights = i4, granularity = block(32), force = true", "",
        "dtype = f16, weights = i4, granularity = block(32), force = true"]),
    # a budget goes to what makes the result, the smallest of several counts
    ("", "dtype = i8, budget = 0.02", "budget = 0.01", (),
     ["dtype = i8", "dtype = i8", "dtype = i8, budget = 0.02", "", "dtype = i8", "dtype = i8", "dtype = i8, budget = 0.01"]),
    ("dtype = i8, budget = 0.005", "budget = 0.5", "", (),
     ["dtype = i8, budget = 0.005", "", "dtype = i8, budget = 0.005"] + ["dtype = i8, budget = 0.005"] * 2 + ["", "dtype = i8, budget = 0.005"]),
    ("", "precision = mixed, up = i8, budget = 0.02", "", (), ["dtype = i8", "", "budget = 0.02", "", "dtype = i8", "", "budget = 0.02"]),
    # the project's policy comes last, and not to what is inside a graph with a clause
    ("", "", "", ("sm_75 { dtype = f16, budget = 0.01 }", "cpu { dtype = i8 }"),
     ["dtype = f16, budget = 0.01", "", "dtype = f16, budget = 0.01", "dtype = f16, budget = 0.01", "dtype = f16, budget = 0.01", "",
      "dtype = f16, budget = 0.01"]),
    ("dtype = i8", "", "", ("sm_75 { dtype = f16 }",), ["dtype = i8", "", "dtype = i8", "dtype = i8", "dtype = i8", "", "dtype = i8"]),
    ("", "precision = mixed, up = i8", "", ("sm_75 { dtype = f16 }",), ["dtype = i8", "", "", "dtype = f16", "dtype = i8", "", ""]),
    ("", "", "", ("sm_75 { precision = mixed, t.first = i8, t.first.down = f16, t.second.up = f16 }",),
     ["dtype = i8", "dtype = i8", "dtype = f16", "", "dtype = f16", "", ""]),
    ("", "", "", ("sm_80 { dtype = f16 }",), [""] * 7),
])
def test_which_policy_counts(own: str, mlp: str, tower: str, policies: tuple[str, ...], expected: list[str]) -> None:
    m = pushed(program(own, mlp, tower), *policies)
    found = clauses(m)
    assert tuple(found) == INSIDE
    assert list(found.values()) == expected
    again = pushed(print_module(m), *policies)
    assert clauses(again) == found
    assert {clause(o) for o in m.operators if o.graph is not None} == {""}


def test_a_label_is_a_whole_word() -> None:
    """Of a node labelled `up`: what is said of `up2`, of `upper` and of `down.up` is not said of it."""
    said = (("", "all"), ("up2", "a"), ("upper", "b"), ("down.up", "c"), ("up.in", "d"), ("up2.in", "e"))
    assert below(said, "up") == (("", "all"), ("in", "d"))
    assert named(below((*said, ("up", "f")), "up")) == "f"
    assert named(below(said, None)) == "all"
    m = pushed(program("", "precision = mixed, up = f16, up2 = i8").replace("as down", "as up2"))
    assert {n.rpartition(".")[2]: c for n, c in clauses(m).items() if ".up" in n} == {"up": "dtype = f16", "up2": "dtype = i8"}


def test_equal_operators_and_clauses_are_one_operator() -> None:
    m = pushed(program("", "precision = mixed, up = i8", "precision = mixed, first.up = i8, second.down = f16"))
    names = [o.name for o in m.operators]
    assert len([n for n in names if n.startswith("linear")]) == 3
    assert len([n for n in names if n.startswith("mlp")]) == 2
    assert len(names) == len(set(names))


def test_what_no_policy_reaches_is_the_same() -> None:
    typed = run(program(), "frontend")
    assert run_passes(typed, [step("push-policies", arch="sm_75")], Report()) is typed
    with_clause = run(program("dtype = i8"), "frontend")
    assert run_passes(with_clause, [step("push-policies", arch="sm_75")], Report()) is with_clause
    graphs = run(program("", "", "precision = mixed, second.down = i8"), "frontend")
    assert run_passes(graphs, [step("push-policies")], Report()) is graphs
    assert run_passes(graphs, [step("push-policies", arch="sm_80")], Report()) is graphs
    new = run_passes(graphs, [step("push-policies", arch="sm_75")], Report())
    old = {o.name: o for o in graphs.operators}
    assert {o.name for o in new.operators if old.get(o.name) is not o} == {"linear.1.1", "mlp.1", "tower"}


def test_clauses_of_other_targets_stay() -> None:
    text = program("", "", "dtype = i8").replace("memory {", "downgrade sm_87 { dtype = f16 }\n  memory {", 1)
    m = pushed(text)
    assert {clause(o, "sm_87") for o in m.operators if o.name.startswith("linear")} == {"dtype = f16"}
    assert clauses(pushed(text, arch="sm_90a"), "sm_75") == dict.fromkeys(INSIDE, "")
    assert clauses(pushed(program("", "", "dtype = i8").replace("sm_75", "sm_90"), arch="sm_90a"), "sm_90") == dict.fromkeys(INSIDE, "dtype = i8")


def test_what_is_passed_over_says_why() -> None:
    m = run_passes(pushed(program("", "", "dtype = f16")), parse_passes("flatten"), Report())
    reasons = {n.results[0].name: n.reason for n in m.pipelines[0].nodes if isinstance(n, Node)}
    assert reasons["y.h.a"] == "declined: the policy at net.plir:16:3 lowers to f16, which is not among its dtypes: f32"
    assert reasons["y.h.h"] is None
    m = run_passes(pushed(program(), "sm_75 { dtype = f16 } pipelink.yaml:3:10"), parse_passes("flatten"), Report())
    assert any("the policy at pipelink.yaml:3:10" in (n.reason or "") for n in m.pipelines[0].nodes if isinstance(n, Node))


def test_operators_without_floats_and_results_that_are_operands() -> None:
    m = pushed("""op @count(%i: tensor<Nxi32>) -> (%j: tensor<Nxi32>) { compute { %j[n] = %i[n] + 1 } }
op @scale(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 2 * %x[n] } }
op @g(%i: tensor<Nxi32>, %x: tensor<Nxf32>) -> (%j: tensor<Nxi32>, %y: tensor<Nxf32>) {
  downgrade cpu { dtype = i8, budget = 0.1 }
  graph { %k = @count(%i)
          %j = @count(%k)
          %z = @scale(%x)
          %y = %z }
}
pipeline @p(%i: tensor<Nxi32>, %x: tensor<Nxf32>) -> (%j: tensor<Nxi32>, %y: tensor<Nxf32>) { %j, %y = @g(%i, %x) }
""", arch="cpu")
    assert clauses(m, "cpu") == {"j.k": "", "j": "budget = 0.1", "j.z": "dtype = i8, budget = 0.1"}


@pytest.mark.parametrize(("arch", "policy", "said"), [
    ("sm_57", "", "'sm_57' is no target; did you mean 'sm_"), ("sm_75", "sm_75 { dtype f16 }", "is no policy"), ("sm_75", "sm_75 unsupported", "is no policy"),
    ("sm_75", "turing { dtype = f16 }", "'turing' is no target"), ("sm_75", "sm_75 { } compute { } op", "is no policy")])
def test_options_that_are_wrong(arch: str, policy: str, said: str) -> None:
    with pytest.raises(UsageError, match="push-policies: ") as caught:
        pushed(program(), *([policy] if policy else []), arch=arch)
    assert said in str(caught.value)


def test_results_stay() -> None:
    rng = np.random.default_rng(5)
    arrays = {"x": rng.normal(size=(3, 8)).astype(np.float32), "w": rng.normal(size=(8, 8)).astype(np.float32)}
    text = program("", "precision = mixed, up = i8", "dtype = f16, budget = 0.1")
    before, after = (load(m, "p")(arrays)["y"] for m in (run(text, "frontend"), pushed(text)))
    assert np.array_equal(before, after)


def test_cases_with_policies() -> None:
    m = run_passes(parse((CASES / "attention.plir").read_text(), "attention.plir"), parse_passes("frontend,push-policies{arch=sm_75}"), Report(), [VerifyEach()])
    assert [clause(o) for o in m.operators] == ["dtype = i8, block = [16, 16, 16], library = cublaslt, budget = 0.02"]


def _many(count: int, labels: int) -> Module:
    nodes = "\n".join(f"    %{'y' if i == count - 1 else f'v{i}'} = @one(%{f'v{i - 1}' if i else 'x'}) as n{i}" for i in range(count))
    named = ", ".join(f"n{i} = {'i8' if i % 2 else 'f16'}" for i in range(labels))
    text = f"""op @one(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ memory {{ dtypes = [f16, f32] }} compute {{ %y[n] = 2 * %x[n] }} }}
op @g(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{
  downgrade sm_75 {{ precision = mixed, {named} }}
  graph {{
{nodes}
  }}
}}
pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ %y = @g(%x) }}
"""
    return run_passes(parse(text, "many.plir"), parse_passes("resolve,infer-types"), Report())


def _calls(work: Callable[[], object]) -> int:
    """How many functions are called, those of Python itself included."""
    count = 0

    def note(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_work_grows_with_the_nodes() -> None:
    def push(m: Module) -> int:
        return _calls(lambda: run_passes(m, [step("push-policies", arch="sm_75")], Report()))
    assert push(_many(2000, 1000)) < 4.4 * push(_many(500, 250))
    assert _calls(lambda: _many(2000, 1000)) < 4.8 * _calls(lambda: _many(500, 250))


def test_many_nodes_share_few_operators() -> None:
    new = run_passes(_many(2000, 1000), [step("push-policies", arch="sm_75")], Report())
    assert sorted(o.name for o in new.operators) == ["g", "one", "one.1", "one.2"]
