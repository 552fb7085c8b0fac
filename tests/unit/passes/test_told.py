"""What the ledger says of products of matrices, and of libraries that are listed."""
from __future__ import annotations

from pathlib import Path

import pytest

import pipelink_ir as pl
from pipelink_ir.ir.diagnostics import ProgramError

PROGRAM = """op @mm(%x: tensor<MxKxDT>, %w: tensor<KxNxDT>) -> (%y: tensor<MxNxf32>) {
  compile { LISTED }
  compute { %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) }
}
pipeline @p(%x: tensor<MxKxDT>, %w: tensor<KxNxDT>) -> (%y: tensor<MxNxf32>) {
  %y = @mm(%x, %w)
}
"""


def told(folder: Path, dtype: str, listed: str, target: str) -> list[str]:
    path = folder / "product.plir"
    path.write_text(PROGRAM.replace("DT", dtype).replace("LISTED", listed))
    return [str(e) for e in pl.compile(str(path), target=target).ledger]


@pytest.mark.parametrize(("dtype", "target", "parts"), [
    ("f16", "sm_90a", ["other: ", "wgmma of f16", "copied first if", "mma.sync m16n8k16"]), ("f16", "sm_90", ["other: ", "mma.sync m16n8k16 of f16", "for sm_90a"]),
    ("f16", "sm_75", ["other: ", "mma.sync m16n8k8 of f16"]), ("i8", "sm_75", ["other: ", "mma.sync m8n8k16 of i8"]),
    ("i8", "sm_80", ["other: ", "mma.sync m16n8k32 of i8"]), ("bf16", "sm_80", ["other: ", "mma.sync m16n8k16 of bf16"]), ("bf16", "sm_75", ["declined: ", "sm_75 has no tensor cores for bf16"]),
    ("f32", "sm_90a", ["declined: ", "not made of operands of f16"]), ("f8e4m3", "sm_89", ["other: ", "mma.sync m16n8k32 of f8e4m3"]),
    ("f8e5m2", "sm_80", ["other: ", "mma.sync m16n8k16 of f16"]), ("f8e4m3", "sm_90a", ["other: ", "wgmma of f16", "converted to f16 first", "mma.sync m16n8k32"])])
def test_the_kernel_and_why(tmp_path: Path, dtype: str, target: str, parts: list[str]) -> None:
    (entry,) = told(tmp_path, dtype, "", target)
    assert all(part in entry for part in parts)


@pytest.mark.parametrize(("target", "parts"), [("sm_80", ["other: ", "mma.sync m16n8k8 of tf32"]), ("sm_90a", ["other: ", "wgmma of tf32", "turned first", "mma.sync m16n8k8"]),
                                               ("sm_75", ["declined: ", "sm_75 has no tensor cores for tf32"])])
def test_tf32_that_is_asked_for(tmp_path: Path, target: str, parts: list[str]) -> None:
    (entry,) = told(tmp_path, "f32", "accuracy = tf32", target)
    assert all(part in entry for part in parts)


@pytest.mark.parametrize(("program", "message"), [
    (PROGRAM.replace("DT", "f16"), "speaks of f32, and no operand is: f16"),
    ("op @twice(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compile { LISTED } compute { %y[i] = 2 * %x[i] } }\n"
     "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @twice(%x) }", "speaks of sums of products, and there is none here")])
def test_tf32_where_there_is_nothing_to_round(tmp_path: Path, program: str, message: str) -> None:
    path = tmp_path / "product.plir"
    path.write_text(program.replace("LISTED", "accuracy = tf32"))
    with pytest.raises(ProgramError) as caught:
        pl.compile(str(path), target="sm_80")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "PL2101"
    assert message in diagnostic.message


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_nothing_is_said_where_there_is_no_gpu(tmp_path: Path, target: str) -> None:
    assert told(tmp_path, "f16", "library = [cublaslt, generated]", target) == []


def test_a_library_that_is_not_called(tmp_path: Path) -> None:
    entries = told(tmp_path, "f16", "library = [cudnn, generated]", "sm_90")
    assert [e.partition(":")[0] for e in entries] == ["fallback", "other"]
    assert "'cudnn' is listed before what runs instead: this version calls cublaslt alone" in entries[0]
    assert [e.partition(":")[0] for e in told(tmp_path, "f16", "library = [generated, cudnn]", "sm_90")] == ["other"]


def test_a_library_that_is_not_called_alone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        told(tmp_path, "f16", "library = cudnn", "sm_90")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "PL4101"
    assert "runs on cudnn alone, and this version calls cublaslt alone" in diagnostic.message
    assert "generated" in (diagnostic.help or "")
