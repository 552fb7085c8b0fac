"""Names of targets, and what a target is compiled for."""
from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.gpus import GPUS, facts_of
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.manager import Step, parse_passes
from pipelink_ir.runtime import targets
from pipelink_ir.runtime.targets import lowered_for, parse_target
from tests.emulated import NEEDS_COMPILER

PLAIN = "op @f(%x: tensor<Nxf16>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] } }\npipeline @p(%x: tensor<Nxf16>) -> (%y: tensor<Nxf32>) { %y = @f(%x) }\n"
CLAUSE = PLAIN.replace("{ compute", "{ downgrade sm_75 { dtype = f16 } compute")


@pytest.mark.parametrize(("name", "arch", "device", "played", "alone"), [
    ("cpu", "cpu", None, False, False), ("reference", "reference", None, False, False), ("cuda", None, 0, False, False), ("cuda:1", None, 1, False, False),
    ("sm_75", "sm_75", None, False, True), ("sm_90a", "sm_90a", None, False, True), ("cuda-emulated", None, None, True, False),
    ("cuda-emulated:sm_75", "sm_75", None, True, False), ("cuda-emulated:sm_90a", "sm_90a", None, True, False)])
def test_names(name: str, arch: str | None, device: int | None, played: bool, alone: bool) -> None:
    found = parse_target(name)
    assert (found.name, found.device, found.played, found.no_device) == (name, device, played, alone)
    assert (None if found.arch is None else str(found.arch)) == arch


@pytest.mark.parametrize(("name", "says"), [
    ("cuda-emulated:sm_76", "'sm_76' is no architecture of a GPU; known are sm_75, "), ("cuda-emulated:cpu", "'cpu' is no architecture of a GPU"),
    ("cuda-emulated:", "'' is no architecture of a GPU"), ("cuda-emulate", "did you mean 'cuda-emulated'")])
def test_names_that_do_not_exist(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_target(name)


@dataclass(frozen=True, slots=True)
class Options:
    arch: str = ""


def filled(target: str, text: str = CLAUSE, given: str = "") -> str:
    """The architecture that the pass is told."""
    steps = [*parse_passes("resolve"), Step(SimpleNamespace(name="lower-precision"), Options(given))]  # type: ignore[arg-type]
    out: Any = lowered_for(steps, parse_target(target), parse(text, "t"))[-1].options
    return str(out.arch)


@pytest.mark.parametrize(("target", "arch"), [("sm_75", "sm_75"), ("sm_90a", "sm_90a"), ("cuda-emulated:sm_80", "sm_80"), ("cpu", "cpu"), ("reference", ""), ("cuda-emulated", "")])
def test_the_pass_is_told_what_it_lowers_for(target: str, arch: str) -> None:
    assert filled(target) == arch


def test_an_option_that_is_written_stays() -> None:
    assert filled("sm_90", given="sm_75") == "sm_75"


def test_a_gpu_is_asked_for_its_own_where_there_are_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends.cuda import opened
    asked: list[int] = []

    def facts(n: int) -> Any:
        asked.append(n)
        return SimpleNamespace(sm=(90, 75)[n])
    monkeypatch.setattr(opened, "driver", lambda: SimpleNamespace(facts=facts))
    assert (filled("cuda"), filled("cuda:1"), asked) == ("sm_90", "sm_75", [0, 1])
    assert (filled("cuda", PLAIN), asked) == ("", [0, 1])
    assert filled("cuda", f'import "mine.plir"\n{PLAIN}') == "sm_90"


def test_without_a_gpu_its_architecture_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends.cuda import opened

    def none() -> None:
        raise UsageError("there is none")
    monkeypatch.setattr(opened, "driver", none)
    assert filled("cuda", PLAIN) == ""
    with pytest.raises(UsageError, match=r"what is lowered depends on the GPU, and there is none to ask .* --target sm_90"):
        filled("cuda")


def test_contracts_are_checked_for_what_is_played() -> None:
    steps = targets.checked_for(parse_passes("check-contracts"), [parse_target("cuda-emulated:sm_75")])
    names = [s.options.targets for s in steps if s.name == "check-contracts"]
    assert names == [("sm_75",)]
    with pytest.raises(pl.ProgramError, match="unsupported on sm_75"):
        pl.compile(PLAIN.replace("{ compute", "{ downgrade sm_75 unsupported compute"), target="cuda-emulated:sm_75")


@NEEDS_COMPILER
@pytest.mark.parametrize(("arch", "dtype", "cores"), [("sm_75", "f16", True), ("sm_75", "bf16", False), ("sm_80", "bf16", True), ("sm_86", "i8", True), ("sm_75", "i8", True), ("sm_75", "f8e4m3", True)])
def test_the_kernels_of_an_architecture_are_played(arch: str, dtype: str, cores: bool) -> None:
    out = "i32" if dtype == "i8" else "f32"
    text = f"""op @mm(%x: tensor<MxKx{dtype}>, %w: tensor<KxNx{dtype}>) -> (%y: tensor<MxNx{out}>) {{ compute {{ %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }} }}
pipeline @m(%x: tensor<MxKx{dtype}>, %w: tensor<KxNx{dtype}>) -> (%y: tensor<MxNx{out}>) {{ %y = @mm(%x, %w) }}
"""
    import ml_dtypes
    r = np.random.default_rng(3)
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f8e4m3": ml_dtypes.float8_e4m3fn, "i8": np.int8}[dtype]
    x, w = (r.integers(-8, 9, size).astype(np.float32).astype(kind) for size in ((33, 40), (40, 19)))
    compiled = pl.compile(text, target=f"cuda-emulated:{arch}")
    # Whole numbers this small are exact in all of these dtypes, and so are their sums.
    np.testing.assert_array_equal(compiled(x=x, w=w).y, x.astype(np.float64) @ w.astype(np.float64))
    assert ("on tensor cores" in compiled.explain()) == cores
    assert compiled.executable.options.room == GPUS[int(arch[3:])].shared_block  # type: ignore[attr-defined]


def test_facts_of_architectures() -> None:
    assert sorted(GPUS) == [75, 80, 86, 87, 89, 90, 100, 120]
    for sm, g in GPUS.items():
        assert g.sm == sm
        assert g.shared_block <= g.shared_processor
        assert ("bf16" in g.tensor, "tf32" in g.tensor) == (sm >= 80, sm >= 80)
        assert ("f8e4m3" in g.tensor) == (sm >= 89)
        assert (g.rate("f32"), g.rate("f16") is not None, g.rate("i8") is not None) == (None, True, True)
        assert g.f32 < (g.rate("f16") or 0) < (g.rate("i8") or 0)
        assert g.unified == (sm == 87)
    assert facts_of(Arch("cuda", 88)) is GPUS[87]
    assert facts_of(Arch("cuda", 121)) is GPUS[120]
    assert facts_of(Arch("cuda", 90, "a")) is GPUS[90]
    assert (facts_of(Arch("cuda", 70)), facts_of(Arch("cpu"))) == (None, None)
