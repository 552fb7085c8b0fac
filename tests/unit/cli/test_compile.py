"""`pipelinkc FILE`: what is printed, what is written, what is dumped."""
from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelink_ir.passes.pipeline import ALIASES, PASSES
from tests.unit.cli.command import BROKEN, ROOT, SCALE, UNKNOWN, Done

Command = Callable[..., Done]

NAMES = [re.sub(r"\{.*\}", "", step) for step in ALIASES["cpu"].split(",")]
"""The passes of the target cpu."""

RUNS = ALIASES["cpu"].replace("place-devices", "place-devices{target=cpu}")
"""What runs for it: the command says where nodes are placed."""


def test_no_pass_prints_what_was_parsed(pipelinkc: Command, scale: Path) -> None:
    done = pipelinkc("-p", "none", scale)
    assert (done.status, done.out, done.err) == (0, SCALE, "")


def test_result_and_talk_are_apart(pipelinkc: Command, scale: Path) -> None:
    plain = pipelinkc(scale)
    done = pipelinkc(scale, "--print-ir-after-all", "--time-passes", "--print-pipeline", "-v")
    assert (done.status, done.out) == (0, plain.out)
    for name in NAMES:
        assert f"// -----// IR Dump After {name} //----- //" in done.err
        assert re.search(rf"\d ms .* {name}$", done.err, re.M)
    assert done.err.startswith(RUNS + "\n")
    assert plain.err == ""


def test_a_device_map_names_each_device_once(pipelinkc: Command, scale: Path) -> None:
    assert pipelinkc(scale, "--device-map", "cuda:1=cuda:0, @t4=cpu").status == 0
    for given, message in (("cuda:1=cuda:0,cuda:1=cpu", "'cuda:1' is given twice"), ("cuda:1=gpu", "'gpu' is no device"), ("cpu", "'cpu' is no entry DEVICE=DEVICE")):
        done = pipelinkc(scale, "--device-map", given)
        assert (done.status, done.out) == (2, "")
        assert f"--device-map: {message}" in done.err


def test_print_ir_of_some(pipelinkc: Command, scale: Path) -> None:
    err = pipelinkc(scale, "--print-ir-before=infer-types,flatten", "--print-ir-after=resolve").err
    assert re.findall(r"IR Dump (\w+ [\w-]+)", err) == ["After resolve", "Before infer-types", "Before flatten"]
    changed = re.findall(r"IR Dump After ([\w-]+)", pipelinkc(scale, "--print-ir-after-change").err)
    assert "infer-types" in changed
    assert "flatten" not in changed
    done = pipelinkc(scale, "--print-ir-after=flattern")
    assert done.status == 2
    assert "did you mean 'flatten'" in done.err


def test_stop_after(pipelinkc: Command, scale: Path) -> None:
    done = pipelinkc(scale, "--stop-after=infer-types")
    assert done.status == 0
    assert done.out == pipelinkc(scale, "-p", "resolve,infer-types").out
    assert "@scale." in done.out
    assert pipelinkc(scale, "-p", "resolve", "--stop-after", "flatten").status == 2
    assert pipelinkc(scale, "--stop-after", "resolve", "--emit", "llvm").status == 2


def test_dumps_resume_elsewhere(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    lib = tmp_path / "lib.plir"
    lib.write_text(SCALE.split("pipeline")[0])
    user = tmp_path / "user.plir"
    user.write_text('import "lib.plir"\n\npipeline' + SCALE.split("pipeline")[1])
    dumps = tmp_path / "dumps"
    whole = pipelinkc(user, "--dump-dir", dumps, "-p", "cpu")
    assert whole.status == 0
    names = sorted(p.name for p in dumps.iterdir())
    assert names == [f"{i:02}.{name}.plir" for i, name in enumerate(["input", *NAMES])]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for i, name in enumerate(names):
        copy = elsewhere / name
        copy.write_text((dumps / name).read_text())
        rest = ALIASES["cpu"].split(",")[i:]
        resumed = pipelinkc(copy, "-p", ",".join(rest) or "none")
        assert (resumed.status, resumed.out) == (0, whole.out), name
        assert pipelinkc(copy).out == whole.out


def test_dump_dir_that_is_a_file(pipelinkc: Command, scale: Path) -> None:
    done = pipelinkc(scale, "--dump-dir", scale)
    assert done.status == 2
    assert "not a folder" in done.err
    assert scale.read_text() == SCALE


def test_a_file_as_output(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    out = tmp_path / "out.plir"
    done = pipelinkc(scale, "-p", "none", "-o", out)
    assert (done.status, done.out, done.err) == (0, "", "")
    assert out.read_text() == SCALE
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.plir", "scale.plir"]
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("text", [BROKEN, UNKNOWN])
def test_a_failed_compile_leaves_the_old_output(pipelinkc: Command, tmp_path: Path, text: str) -> None:
    source, out = tmp_path / "x.plir", tmp_path / "out.plir"
    source.write_text(text)
    assert pipelinkc(source, "-o", out).status == 1
    assert not out.exists()
    out.write_text("old")
    assert pipelinkc(source, "-o", out).status == 1
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.plir", "x.plir"]


def test_an_old_output_keeps_its_mode_and_its_link(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    real, link = tmp_path / "real.plir", tmp_path / "link.plir"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert pipelinkc(scale, "-p", "none", "-o", link).status == 0
    assert link.is_symlink()
    assert real.read_text() == SCALE
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_the_input_is_never_overwritten(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    link = tmp_path / "link.plir"
    link.symlink_to(scale)
    for out in (scale, link, tmp_path / "." / "scale.plir"):
        done = pipelinkc(scale, "-o", out)
        assert done.status == 2
        assert "never overwritten" in done.err
    assert scale.read_text() == SCALE


@pytest.mark.parametrize("out", ["missing/out.plir", ""])
def test_outputs_that_cannot_be_written(pipelinkc: Command, tmp_path: Path, scale: Path, out: str) -> None:
    done = pipelinkc(scale, "-o", tmp_path / out if out else tmp_path)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "cannot be written" in done.err


def test_a_device_as_output(pipelinkc: Command, scale: Path) -> None:
    assert pipelinkc(scale, "-o", "/dev/null").status == 0
    done = pipelinkc(scale, "-o", "/dev/full")
    assert done.status == 2
    assert "no space left" in done.err
    assert pipelinkc(scale, "-p", "none", "-o", "-").out == SCALE
    assert pipelinkc(scale, "-p", "none", "-o", "/dev/stdout").out == SCALE


def test_a_pipe_as_output(scale: Path) -> None:
    line = f'{sys.executable} -m pipelink_ir.cli -p none "{scale}" -o >(cat; echo end) | cat'
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, timeout=60)
    assert done.stdout.decode() == SCALE + "end\n"
    assert done.stderr == b""


def test_attributes_are_set(pipelinkc: Command, scale: Path) -> None:
    assert "by: f32 = 0.5)" in pipelinkc(scale, "-p", "none", "--set", "by=0.5").out
    assert "by: f32 = -3)" in pipelinkc(scale, "-p", "none", "--set", "by=-3").out
    for wrong, said in (("bye=1", "did you mean 'by'"), ("by=inf", "not finite"), ("by=true", "not 'true'"), ("by=1_0", "not '1_0'"), ("by=", "NAME=VALUE")):
        done = pipelinkc(scale, "--set", wrong)
        assert done.status == 2, wrong
        assert said in done.err


def test_one_of_several_pipelines(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "two.plir"
    path.write_text(SCALE + "\npipeline @other" + SCALE.split("pipeline @main")[1])
    assert pipelinkc(path).status == 0
    done = pipelinkc(path, "--emit", "plan")
    assert done.status == 2
    assert "@main, @other" in done.err
    assert json.loads(pipelinkc(path, "--emit", "plan", "--pipeline", "@other").out)["pipeline"] == "other"
    assert "did you mean '@other'" in pipelinkc(path, "--emit", "plan", "--pipeline", "othr").err


def test_plan_and_drawing(pipelinkc: Command, scale: Path) -> None:
    plan = json.loads(pipelinkc(scale, "--emit", "plan").out)
    assert [n["results"] for n in plan["nodes"]] == [[{"name": "y", "type": "tensor<NxKxf32>"}]]
    assert plan["inputs"] == [{"name": "x", "type": "tensor<NxKxf32>"}]
    out = pipelinkc(scale, "--emit", "dot").out
    assert out.startswith('digraph "main" {\n')
    assert '"in x" -> "node 0" [label="%x"];' in out
    assert '"node 0" -> "out y" [label="%y"];' in out


@pytest.mark.parametrize("args", [("--emit", "cuda"), ("--emit", "hip"), ("--emit", "ptx"), ("-o", "x.cubin"), ("-o", "x.cu")])
def test_cuda_needs_a_target_of_cuda(pipelinkc: Command, scale: Path, args: tuple[str, str]) -> None:
    done = pipelinkc(scale, *args)
    assert done.status == 2
    assert "the target 'cpu' makes no '" in done.err
    assert "a target like sm_90 does" in done.err


@pytest.mark.parametrize(("emit", "end"), [("cuda", "cu"), ("hip", "hip")])
def test_cuda_text(pipelinkc: Command, tmp_path: Path, scale: Path, emit: str, end: str) -> None:
    done = pipelinkc(scale, "--target", "sm_90", "--emit", emit)
    assert (done.status, done.err) == (0, "")
    assert 0 < done.out.index("#ifndef PIPELINK_NUMBERS_CUH") < done.out.index("#ifndef PIPELINK_THREADS_CUH")
    assert 'extern "C" __global__ void' in done.out
    assert (f"#include <{emit}/{emit}_runtime.h>" in done.out) == (emit == "hip")
    assert pipelinkc(scale, "--target", "sm_90", "-o", tmp_path / f"x.{end}").status == 0
    assert (tmp_path / f"x.{end}").read_text() == done.out


@pytest.mark.parametrize(("emit", "end", "expected"), [("llvm", "ll", "define "), ("asm", "s", ".text"), ("loops", "loops", "for ")])
def test_texts_of_the_backend(pipelinkc: Command, tmp_path: Path, scale: Path, emit: str, end: str, expected: str) -> None:
    done = pipelinkc(scale, "--emit", emit)
    assert (done.status, done.err) == (0, "")
    assert expected in done.out
    assert pipelinkc(scale, "-o", tmp_path / f"x.{end}").status == 0
    assert (tmp_path / f"x.{end}").read_text().strip() == done.out.strip()
    refused = pipelinkc(scale, "--emit", emit, "--target", "reference")
    assert refused.status == 2
    assert f"makes no '{emit}'" in refused.err


def test_dump_dir_has_the_backend_s_texts(pipelinkc: Command, tmp_path: Path, scale: Path) -> None:
    assert pipelinkc(scale, "--dump-dir", tmp_path / "d").status == 0
    names = sorted(p.name.split(".", 1)[1] for p in (tmp_path / "d").iterdir())
    assert {"main.loops", "main.ll", "main.s", "main.plan.json"} <= set(names)


@pytest.mark.parametrize("target", ["sm_90", "cuda", "cuda:1", "cpu", "reference"])
def test_targets(pipelinkc: Command, scale: Path, target: str) -> None:
    assert pipelinkc(scale, "--target", target).status == 0
    done = pipelinkc(scale, "--target", target.replace("c", "k").replace("s", "z"))
    assert done.status == 2
    assert "there is no target" in done.err


def test_print_pipeline_reads_back(pipelinkc: Command, scale: Path) -> None:
    text = pipelinkc("--print-pipeline").out.strip()
    assert text == RUNS
    assert pipelinkc(scale, "-p", text).out == pipelinkc(scale).out


@pytest.mark.parametrize("name", PASSES)
def test_help_of_every_pass(pipelinkc: Command, name: str) -> None:
    assert f"  {name} " in pipelinkc("--help-passes").out
    done = pipelinkc(f"--help-passes={name}")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"{name}: ")
    assert len(done.out.splitlines()) > 5


def test_a_fault_in_a_pass_leaves_a_crash_file(pipelinkc: Command, tmp_path: Path, scale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.passes import manager
    monkeypatch.chdir(tmp_path)
    broken = manager.find_pass("flatten")
    monkeypatch.setitem(manager._REGISTRY, "flatten", manager.Pass(broken.name, broken.description, broken.options, lambda *a: 1 / 0, broken.typed))  # type: ignore[arg-type,return-value]
    done = pipelinkc(scale)
    assert done.status == 70
    assert done.out == ""
    assert "in the pass 'flatten'" in done.err
    assert "Traceback" not in done.err
    crash = (tmp_path / "pipelinkc-crash.plir").read_text()
    assert "// To reproduce: pipelinkc pipelinkc-crash.plir -p flatten" in crash
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert pipelinkc("pipelinkc-crash.plir", "-p", "flatten").status == 0


def test_warnings_do_not_stop(pipelinkc: Command, tmp_path: Path) -> None:
    path = tmp_path / "x.plir"
    path.write_text(SCALE.replace("pipeline @main(", "pipeline @main(%unused: tensor<Mxf32>, "))
    done = pipelinkc(path)
    assert done.status == 0
    assert "warning[PL1101]" in done.err
    assert "pipeline @main" in done.out
