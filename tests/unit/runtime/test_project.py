"""`pipelink.yaml`: found, read, told at the right place when it is wrong, and in force."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.runtime.project import Project, find_project, read_project
from pipelink_ir.runtime.project_keys import KEYS, page, schema_text
from tests.unit.cli.command import Done
from tests.unit.runtime.programs import TWICE, matrix, twice

ROOT = Path(__file__).resolve().parents[3]


def project(folder: Path, text: str) -> Project:
    path = folder / "pipelink.yaml"
    path.write_text(text, encoding="utf-8")
    return read_project(str(path))


def faults(folder: Path, text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(pl.ProgramError) as caught:
        project(folder, text)
    assert all(d.code == "PL9102" for d in caught.value.diagnostics)
    return [(d.span.line, d.span.column, f"{d.message}; {d.help}") for d in caught.value.diagnostics]


WHOLE = """\
# a whole project
targets: [cpu, sm_75, sm_90]
search_paths: [ops]
device_map: {"cuda:1": "cuda:0", "@t4": cpu}
precision:
  sm_75: {dtype: f16, budget: 0.01}
  sm_90: {precision: mixed, ffn_up: f16, block: 128, library: cublaslt}
cache: .cache
log_level: debug
copies: allow
build:
  - program: edge.plir
    targets: [sm_75]
    output: out/edge.plk
  - {program: edge.plir, pipeline: main}
"""


def test_everything_is_read(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "edge.plir").write_text(TWICE)
    p = project(tmp_path, WHOLE)
    assert p.path == str(tmp_path / "pipelink.yaml")
    assert (p.targets, p.search_paths) == (("cpu", "sm_75", "sm_90"), (str(tmp_path / "ops"),))
    assert p.device_map == {"cuda:1": "cuda:0", "@t4": "cpu"}
    assert p.precision == {"sm_75": {"dtype": "f16", "budget": "0.01"}, "sm_90": {"precision": "mixed", "ffn_up": "f16", "block": "128", "library": "cublaslt"}}
    assert (p.cache, p.log_level, p.copies) == (str(tmp_path / ".cache"), "debug", "allow")
    assert [(b.program, b.pipeline, b.targets, b.output) for b in p.build] == [
        (str(tmp_path / "edge.plir"), None, ("sm_75",), str(tmp_path / "out" / "edge.plk")), (str(tmp_path / "edge.plir"), "main", (), None)]
    assert (p.runs_on(), p.archs()) == ("cpu", ("sm_75", "sm_90"))


@pytest.mark.parametrize(("targets", "with_gpu", "without"), [
    (("cuda", "cpu"), "cuda", "cpu"), (("sm_90", "cuda:1"), "cuda:1", None), (("reference", "cuda"), "reference", "reference"), (("sm_75",), None, None)])
def test_programs_run_on_the_first_device_that_is_there(monkeypatch: pytest.MonkeyPatch, targets: tuple[str, ...], with_gpu: str | None, without: str | None) -> None:
    for best, runs_on in (("cuda", with_gpu), ("cpu", without)):
        monkeypatch.setattr("pipelink_ir.runtime.targets.best_target", lambda best=best: best)
        assert Project(targets=targets).runs_on() == runs_on


def test_policies_reach_the_pass(tmp_path: Path) -> None:
    p = project(tmp_path, """\
precision:
  sm_75: {dtype: i8, weights: i4, granularity: block(64), scheme: affine, ranges: dynamic, force: true, budget: 5e-2}
  sm_87:
    precision: mixed
    ffn.up: i8
    block: [64, 64, 32]
    library: [cublaslt, generated]
""")
    push, _ = p.steps(parse_passes("push-policies,flatten"), checked=False)[-2:]
    assert push.options.policies == (
        f"sm_75 {{ dtype = i8, weights = i4, granularity = block(64), scheme = affine, ranges = dynamic, force = true, budget = 0.05 }} {p.path}:2:10",
        f"sm_87 {{ precision = mixed, ffn.up = i8, block = [64, 64, 32], library = [cublaslt, generated] }} {p.path}:4:5")
    assert parse_passes(str(push))[-1] == push
    own = p.steps(parse_passes('push-policies{policies=["cpu { dtype = f16 }"]}'), checked=False)[-1]
    assert own.options.policies == ("cpu { dtype = f16 }",)
    text = "op @s(%x: tensor<NxT>) -> (%y: tensor<NxT>) { memory { dtypes = [f16, f32] } compute { %y[n] = 2 * %x[n] } }\n" \
           "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @s(%x) as ffn }\n"
    steps = project(tmp_path, "precision: {cpu: {dtype: f16}}\n").steps(parse_passes("frontend,push-policies{arch=cpu}"), checked=False)
    clause, = (d for o in run_passes(parse(text, "p.plir"), steps, Report()).operators for d in o.downgrades)
    assert (clause.target, [s.key for s in clause.settings or ()], clause.span.line, clause.span.column) == ("cpu", ["dtype"], 1, 18)


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufefftargets: [cpu]\n", "targets: [cpu]\r\ncopies: allow\r\n", "{}\n", "build: []\n"])
def test_small_files(tmp_path: Path, text: str) -> None:
    assert project(tmp_path, text).targets in ((), ("cpu",))


FAULTS: dict[str, tuple[str, list[tuple[int, int, str]]]] = {
    "unknown key": ("targets: [cpu]\ntarget: [cpu]\n", [(2, 1, "did you mean 'targets'")]),
    "a key far from any": ("zzz: 1\n", [(1, 1, "its keys are targets, search_paths")]),
    "unknown target": ("targets: [cpu, sm_57]\n", [(1, 16, "did you mean")]),
    "no target": ("targets: []\n", [(1, 10, "no target in the list")]),
    "a target that is no list": ("targets: cpu\n", [(1, 10, "is a list")]),
    "a target twice": ("targets: [cpu, sm_75, cpu]\n", [(1, 23, "twice")]),
    "a key twice": ("copies: allow\ncache: off\ncopies: refuse\n", [(3, 1, "'copies' is written twice")]),
    "copies": ("copies: alow\n", [(1, 9, "did you mean 'allow'")]),
    "log level": ("log_level: loud\n", [(1, 12, "none of debug, info, warning, error")]),
    "no folder": ("search_paths:\n  - nowhere\n", [(2, 5, "no folder 'nowhere'")]),
    "a device": ("device_map:\n  cuda:1: gpu\n", [(2, 11, "'gpu' is no device")]),
    "a key of a device": ("device_map:\n  gpu1: cpu\n", [(2, 9, "'gpu1' is no device")]),
    "policy of no target": ("precision:\n  sm_7: {dtype: f16}\n", [(2, 9, "no target 'sm_7'")]),
    "policy key": ("precision:\n  sm_75: {dtyp: f16}\n", [(2, 11, "did you mean 'dtype'")]),
    "policy dtype": ("precision:\n  sm_75: {dtype: fp16}\n", [(2, 18, "did you mean 'f16'")]),
    "budget": ("precision:\n  sm_75: {budget: -1}\n", [(2, 19, "a positive number")]),
    "block": ("precision:\n  sm_75: {block: 1.5}\n", [(2, 18, "a positive integer")]),
    "library": ("precision:\n  sm_75: {library: cublas}\n", [(2, 20, "did you mean 'cublaslt'")]),
    "granularity": ("precision:\n  sm_75: {dtype: i8, granularity: block}\n", [(2, 35, "block(32)")]),
    "scheme": ("precision:\n  sm_75: {dtype: i8, scheme: affin}\n", [(2, 30, "did you mean 'affine'")]),
    "weights": ("precision:\n  sm_75: {dtype: i8, weights: i16}\n", [(2, 31, "none of i8, i4")]),
    "ranges": ("precision:\n  sm_75: {dtype: i8, ranges: static}\n", [(2, 30, "none of calibrated, dynamic")]),
    "force": ("precision:\n  sm_75: {dtype: i8, force: 1}\n", [(2, 29, "none of true, false")]),
    "a tile": ("precision:\n  sm_75: {block: [64, big]}\n", [(2, 23, "a positive integer")]),
    "an empty value": ("cache:\n", [(1, 7, "is empty")]),
    "build without a program": ("build:\n  - output: x.plk\n", [(2, 5, "names its 'program'")]),
    "build of a file that is not there": ("build:\n  - program: edge.plir\n", [(2, 14, "no file 'edge.plir'")]),
    "build with an unknown key": ("build:\n  - {program: pipelink.yaml, out: x}\n", [(2, 30, "did you mean 'output'")]),
    "no table": ("- targets\n", [(1, 1, "a project file is a table")]),
    "no YAML": ("targets: [cpu\ncopies: allow\n", [(2, 7, "this is not YAML")]),
    "a tab": ("build:\n\t- program: x\n", [(2, 1, "this is not YAML")]),
    "two documents": ("copies: allow\n---\ncopies: refuse\n", [(2, 1, "this is not YAML")]),
    "a key that is no word": ("[a, b]: c\n", [(1, 1, "a key is a word")]),
    "policy of the reference": ("precision:\n  reference: {dtype: f16}\n", [(2, 14, "computes what is written")]),
    "f16 with a zero point": ("precision:\n  sm_75: {dtype: f16, scheme: affine}\n", [(2, 31, "leave 'scheme' out")]),
    "budget of nothing": ("precision:\n  sm_75:\n    force: true\n", [(3, 12, "lowers nothing")]),
    "weights wider than dtype": ("precision:\n  sm_75: {dtype: i8, weights: f16}\n", [(2, 31, "wider than i8")]),
    "threads": ("precision:\n  sm_75: {dtype: i8, block: 4096}\n", [(2, 29, "at most 1024 threads")]),
    "a library of the cpu": ("precision:\n  cpu: {dtype: i8, library: cublaslt}\n", [(2, 8, "is for NVIDIA devices")]),
    "activations in i4": ("precision:\n  sm_75: {dtype: i4}\n", [(2, 18, "weights: i4")]),
    "codes of i16": ("precision:\n  sm_75: {dtype: i16}\n", [(2, 18, "dtype: i8")]),
    "several": ("copies: yes\ntargets: [cpv]\nextra: 1\n", [(1, 9, "'yes' is none of"), (2, 11, "did you mean 'cpu'"), (3, 1, "no key 'extra'")]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_told_at_their_place(tmp_path: Path, name: str) -> None:
    text, expected = FAULTS[name]
    found = faults(tmp_path, text)
    assert [(line, column) for line, column, _ in found] == [(line, column) for line, column, _ in expected]
    for (_, _, said), (_, _, wanted) in zip(found, expected, strict=True):
        assert wanted in said


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "pipelink.yaml"
    path.write_bytes(b"copies: allow\ncache: \xff\n")
    with pytest.raises(pl.ProgramError, match=r"pipelink\.yaml:2:8: error\[PL9102\]: project: this is not UTF-8"):
        read_project(str(path))


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "copies: allow\nb: " + "{c: [" * 40_000])
def test_brackets_without_end_are_told_where_they_are_too_many(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipelink.yaml"
    path.write_text(text)
    line = text.count("\n") + 1
    column = [n for n, c in enumerate(text.split("\n")[-1], 1) if c in "[{"][500]
    with pytest.raises(pl.ProgramError, match=rf"pipelink\.yaml:{line}:{column}: error\[PL9102\]: project: this is nested too deeply"):
        read_project(str(path))


def test_brackets_that_close_are_as_many_as_one_likes(tmp_path: Path) -> None:
    path = tmp_path / "pipelink.yaml"
    path.write_text("log_level: debug  # " + "[] {} ] " * 1000 + "\ncopies: allow\n")
    assert read_project(str(path)).copies == "allow"


def test_it_is_found_above_and_read_anew_when_it_changes(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    program = str(deep / "p.plir")
    assert find_project(program).path != str(tmp_path / "pipelink.yaml")
    project(tmp_path, "copies: allow\n")
    assert find_project(program).copies == "allow"
    project(tmp_path / "a", "cache: off\n")
    assert (find_project(program).copies, find_project(program).cache) == (None, "off")     # the nearest one alone
    os.utime(tmp_path / "a" / "pipelink.yaml", ns=(1, 1))
    (tmp_path / "a" / "pipelink.yaml").write_text("copies: refuse\n")
    assert find_project(program).copies == "refuse"


class TestInForce:
    """What the keys do."""

    def test_search_paths(self, tmp_path: Path) -> None:
        (tmp_path / "ops").mkdir()
        (tmp_path / "ops" / "mine.plir").write_text(TWICE.split("pipeline")[0])
        program = tmp_path / "p.plir"
        program.write_text('import "mine.plir"\npipeline' + TWICE.split("pipeline")[1])
        with pytest.raises(pl.ProgramError, match=r"no file 'mine\.plir'"):
            pl.compile(program)
        project(tmp_path, "search_paths: [ops]\n")
        np.testing.assert_array_equal(pl.compile(program)(x=matrix(2, 2)).y, 2 * matrix(2, 2))

    def test_copies(self, tmp_path: Path) -> None:
        program = tmp_path / "p.plir"
        program.write_text(twice(contiguity="dense"))
        project(tmp_path, "copies: allow\n")
        np.testing.assert_array_equal(pl.compile(program)(x=matrix(4, 3).T).y, 2 * matrix(4, 3).T)
        with pytest.raises(pl.ContractViolationError):
            pl.compile(program, copies="refuse")(x=matrix(4, 3).T)

    def test_targets(self, tmp_path: Path, pipelinkc: Callable[..., Done]) -> None:
        program = tmp_path / "p.plir"
        program.write_text(TWICE.replace("  compute", '  compile { arch = ">= sm_90" }\n  compute'))
        assert pipelinkc("check", "p.plir").status == 0
        project(tmp_path, "targets: [reference, sm_75]\n")
        assert pl.compile(program, "cpu").target.name == "cpu"
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(program)
        assert caught.value.field == "arch"
        assert "built for sm_75" in pipelinkc("check", "p.plir").out
        assert pipelinkc("check", "p.plir", "--target", "sm_90").status == 0
        program.write_text(TWICE)
        assert pl.compile(program).target.name == "reference"
        program.write_text("target @own { arch = sm_90 }\n" + TWICE.replace("  compute", '  compile { arch = ">= sm_90" }\n  compute'))
        assert pipelinkc("check", "p.plir").status == 0     # its own target replaces the project's

    def test_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "p.plir"
        program.write_text(TWICE.replace("2 *", "2.0625 *"))
        monkeypatch.delenv("PIPELINK_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        project(tmp_path, "cache: kept\n")
        pl.compile(program)
        assert list((tmp_path / "kept").rglob("*"))
        project(tmp_path, "cache: off\n")
        before = sorted((tmp_path / "kept").rglob("*"))
        program.write_text(TWICE.replace("2 *", "2.125 *"))
        pl.compile(program)
        assert sorted((tmp_path / "kept").rglob("*")) == before
        assert not (tmp_path / "off").exists()
        monkeypatch.setenv("PIPELINK_CACHE_DIR", str(tmp_path / "own"))       # the variable wins
        pl.compile(program)
        assert list((tmp_path / "own").rglob("*"))

    def test_log_level(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        program = tmp_path / "p.plir"
        program.write_text(TWICE)
        monkeypatch.delenv("PIPELINK_LOG_LEVEL", raising=False)
        project(tmp_path, "log_level: debug\n")
        pl.compile(program)(x=matrix(2, 2))
        assert "debug: '@main' %x" in capsys.readouterr().err
        monkeypatch.setenv("PIPELINK_LOG_LEVEL", "warning")
        pl.compile(program)(x=matrix(2, 2))
        assert capsys.readouterr().err == ""

    def test_a_fault_ends_every_command(self, tmp_path: Path, pipelinkc: Callable[..., Done]) -> None:
        (tmp_path / "p.plir").write_text(TWICE)
        np.save(tmp_path / "x.npy", matrix(2, 2))
        project_file = tmp_path / "pipelink.yaml"
        project_file.write_text("copies: allow\ntragets: [cpu]\n")
        for command in (("p.plir",), ("run", "p.plir", "--in", "x=x.npy"), ("check", "p.plir")):
            done = pipelinkc(*command)
            assert done.status == 2
            assert "pipelink.yaml:2:1: error[PL9102]: project: a project file has no key 'tragets'" in done.out + done.err
            assert "did you mean 'targets'?" in done.out + done.err
        with pytest.raises(pl.ProgramError, match="PL9102"):
            pl.compile(tmp_path / "p.plir")
        assert pl.compile(TWICE).target.name == "cpu"       # a text has no folder

    def test_defaults_end_with_what_they_are_for(self) -> None:
        before = environment.log_level()
        with environment.defaults({"PIPELINK_LOG_LEVEL": "debug"}), environment.defaults({}):
            assert environment.log_level() == "warning" or os.environ.get("PIPELINK_LOG_LEVEL")
        assert environment.log_level() == before


class TestDebugLog:
    """`PIPELINK_LOG_LEVEL=DEBUG`."""

    def test_each_array_beside_its_contract(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("PIPELINK_LOG_LEVEL", "DEBUG")
        compiled = pl.compile(twice(contiguity="rows", layout="HW"))
        x = pl.as_view(matrix(3, 8)[:, :4], layout="HW")
        for _ in range(3):
            compiled(x=x)
            told = capsys.readouterr().err
            for part in ("'@main' %x: tensor<HxWxf32, HW>; 'rows' asked by '@twice' (<text>:2:17), HW by '@twice'", "given f32[3, 4] HW on cpu",
                         "rows with a pitch of 32 bytes", f"at {x.address:#x}", "made at " + __file__, ": fits"):
                assert part in told
        with pytest.raises(pl.ContractViolationError):
            compiled(x=matrix(4, 3).T)
        assert ": refused: '@twice' reads '%x' and takes 'rows' memory" in capsys.readouterr().err
        with pytest.raises(pl.ExecutionError):
            compiled(x="text")
        assert "given str: refused" in capsys.readouterr().err


class TestSchema:
    """The schema for editors says what the reader says."""

    @pytest.fixture
    def validate(self) -> Callable[[Any], list[str]]:
        jsonschema = pytest.importorskip("jsonschema")
        schema = json.loads(schema_text())
        jsonschema.Draft7Validator.check_schema(schema)
        return lambda value: [e.message for e in jsonschema.Draft7Validator(schema).iter_errors(value)]

    def test_files_in_the_repository(self) -> None:
        assert (ROOT / "docs" / "pipelink.schema.json").read_text(encoding="utf-8") == schema_text()
        assert page() in (ROOT / "docs" / "project-file.md").read_text(encoding="utf-8")

    def test_every_key_is_documented_and_read(self) -> None:
        text = (ROOT / "docs" / "project-file.md").read_text(encoding="utf-8")
        fields = {f for f in Project.__dataclass_fields__ if f not in ("path", "places", "labels")}
        assert {k.name for k in KEYS} == fields
        assert all(f"## {k.name}\n" in text and len(k.doc) > 60 for k in KEYS)

    def test_examples_are_right(self, tmp_path: Path, validate: Callable[[Any], list[str]]) -> None:
        import yaml
        for folder in ("ops", "proj"):
            (tmp_path / folder).mkdir()
        (tmp_path / "shared" / "ops").mkdir(parents=True)
        (tmp_path / "proj" / "ops").mkdir()
        (tmp_path / "proj" / "edge.plir").write_text(TWICE)
        for key in KEYS:
            project(tmp_path / "proj", key.example)
            assert validate(yaml.safe_load(key.example)) == []

    @pytest.mark.parametrize("name", [n for n in FAULTS if n not in (
        # what a schema cannot know: files and folders, YAML itself, words of YAML, keys written twice
        "no folder", "build of a file that is not there", "no YAML", "a tab", "two documents", "a key that is no word", "a key twice",
        # what a policy says against itself
        "f16 with a zero point", "budget of nothing", "weights wider than dtype", "threads", "a library of the cpu", "activations in i4", "codes of i16",
        # `sm_57` and `sm_7` have the form of a target
        "unknown target", "policy of no target")])
    def test_it_refuses_what_the_reader_refuses(self, name: str, validate: Callable[[Any], list[str]]) -> None:
        import yaml
        assert validate(yaml.safe_load(FAULTS[name][0]))
