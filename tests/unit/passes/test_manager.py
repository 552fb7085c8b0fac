"""The registry, the text of pipelines, the loop over passes, and what hooks see of it."""
from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import InternalError, ProgramError, Report, UsageError
from pipelink_ir.ir.nodes import Module, Target
from pipelink_ir.ir.source import Source, Span
from pipelink_ir.passes import manager
from pipelink_ir.passes.hooks import CRASH_FILE, CrashFile, DumpDir, PrintIR, TimePasses, VerifyEach, anchored, split_names
from pipelink_ir.passes.manager import Step, parse_passes, pipeline_text, register_pass, run_passes, step, stop_after

EMPTY = Module(())


@dataclass(frozen=True, slots=True)
class Options:
    """Options of every kind."""

    rounds: int = 1
    ratio: float = 0.5
    loud: bool = False
    name: str = "x"
    mode: Literal["fast", "small"] = "fast"
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    limit: int | None = None
    two_words: int = 0


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry of passes for the tests alone."""
    monkeypatch.setattr(manager, "_REGISTRY", {})
    monkeypatch.setattr(manager, "PASSES", ("add", "same", "bad", "broken", "untrue", "resolve", "infer-types", "needs"))
    monkeypatch.setattr(manager, "ALIASES", {"none": "", "both": "add,same", "all": "both,add{rounds=3}"})

    @register_pass("add", "adds a target", Options)
    def add(module: Module, options: Options, report: Report) -> Module:
        return replace(module, items=(*module.items, Target(f"t{len(module.items)}", ())))

    @register_pass("same", "changes nothing")
    def same(module: Module, options: Any, report: Report) -> Module:
        return module

    @register_pass("bad", "finds the user at fault")
    def bad(module: Module, options: Any, report: Report) -> Module:
        report.error("name", Span(Source("a.plir", "x"), 0, 1), "there is no x")
        return module

    @register_pass("broken", "is at fault itself", Options)
    def broken(module: Module, options: Any, report: Report) -> Module:
        raise KeyError("oops")

    @register_pass("untrue", "makes a module that does not verify")
    def untrue(module: Module, options: Any, report: Report) -> Module:
        return replace(module, items=[1])  # type: ignore[arg-type]

    for name in ("resolve", "infer-types"):
        register_pass(name, "a stand-in")(lambda module, options, report: module)
    register_pass("needs", "needs types", typed=True)(lambda module, options, report: module)


def test_options_by_type() -> None:
    (one,) = parse_passes('add{rounds=2, ratio=1e-3,loud=true,name="a,{b}",mode=small,names=[p,q],sizes=[1,2],limit=7,two-words=4}')
    assert one.options == Options(2, 1e-3, True, "a,{b}", "small", ("p", "q"), (1, 2), 7, 4)


@pytest.mark.parametrize("text", ["add", "add,same", "add{rounds=2,loud=true},same", 'add{name="a b",names=[x,"y,z"],sizes=[1]}', "none", "add{limit=3}"])
def test_text_of_steps_reads_back(text: str) -> None:
    steps = parse_passes(text)
    assert pipeline_text(steps) == text
    assert parse_passes(pipeline_text(steps)) == steps


def test_aliases_nest() -> None:
    assert pipeline_text(parse_passes("all")) == "add,same,add{rounds=3}"
    assert parse_passes("") == parse_passes("none") == ()


@pytest.mark.parametrize(("text", "message"), [
    ("sam", "did you mean 'same'?"),
    ("same,zzzz", "column 6: there is no pass 'zzzz'; the passes are add, same"),
    ("add{round=1}", "column 5: the pass 'add' has no option 'round'; did you mean 'rounds'"),
    ("same{x=1}", "has no option 'x'; it has none"),
    ("add{rounds=two}", "the option 'rounds' is an integer, not 'two'"),
    ("add{ratio=x}", "the option 'ratio' is a number, not 'x'"),
    ("add{loud=yes}", "the option 'loud' is true or false, not 'yes'"),
    ("add{mode=big}", "the option 'mode' is one of fast, small, not 'big'"),
    ("add{rounds=[1]}", "takes one value, not a list"),
    ("add{sizes=[a]}", "the option 'sizes' is an integer, not 'a'"),
    ("add{rounds=1,rounds=2}", "column 14: the option 'rounds' is given twice"),
    ("add{rounds=1", "expected ',' or '}', found the end"),
    ("add{rounds}", "expected '=', found '}'"),
    ("add,,same", "column 5: expected the name of a pass, found ','"),
    ("add same", "expected ',' or the end, found 's'"),
    ('add{name="x}', "the string is not closed"),
    ("add{names=[a b]}", "expected ',' or ']', found 'b'"),
    ("both{x=1}", "'both' is a name for several passes and takes no options"),
])
def test_wrong_pipelines(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_passes(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "steps"), [
    ("needs", "resolve,infer-types,needs"), ("resolve,needs", "resolve,infer-types,needs"), ("resolve,infer-types,needs", "resolve,infer-types,needs"),
    ("add,needs,needs", "add,resolve,infer-types,needs,needs"), ("add", "add"),
])
def test_types_are_written_before_who_reads_them(text: str, steps: str) -> None:
    assert pipeline_text(parse_passes(text)) == steps


def test_stop_after() -> None:
    steps = parse_passes("add,same,add{rounds=2},same")
    assert pipeline_text(stop_after(steps, "add")) == "add,same,add{rounds=2}"
    with pytest.raises(UsageError, match="not among those that run: add,same"):
        stop_after(steps, "bad")
    with pytest.raises(UsageError, match="did you mean 'same'"):
        stop_after(steps, "sam")


def test_a_pass_registers_once() -> None:
    with pytest.raises(InternalError, match="two passes are called 'add'"):
        register_pass("add", "again")(lambda module, options, report: module)


def test_hooks_see_everything_in_order() -> None:
    seen: list[str] = []

    def hook(name: str) -> Any:
        def call(at: Step, before: Module, after: Module | Exception | None) -> None:
            count = len(after.items) if isinstance(after, Module) else after
            seen.append(f"{name} {at.name} {len(before.items)} {count}")
        return call

    out = run_passes(EMPTY, parse_passes("add,same"), Report(), [hook("a"), hook("b")])
    assert [t.name for t in out.targets] == ["t0"]
    assert seen == ["a input 0 0", "b input 0 0", "b add 0 None", "a add 0 None", "a add 0 1", "b add 0 1",
                    "b same 1 None", "a same 1 None", "a same 1 1", "b same 1 1"]


def test_errors_of_the_user_stop_the_run() -> None:
    with pytest.raises(ProgramError, match="there is no x"):
        run_passes(EMPTY, parse_passes("bad,broken"), Report(), [CrashFile()])
    assert not Path(CRASH_FILE).exists()


def test_a_failing_pass_is_an_internal_error_that_names_it() -> None:
    with pytest.raises(InternalError, match=r"in the pass 'broken': KeyError: 'oops' \(.*test_manager.py:\d+\)"):
        run_passes(EMPTY, parse_passes("add,broken"), Report())


def test_the_verifier_names_the_pass() -> None:
    with pytest.raises(InternalError, match=r"after the pass 'untrue': the result of 'untrue' does not verify: .*structure: a list is no part"):
        run_passes(EMPTY, parse_passes("add,untrue"), Report(), [VerifyEach()])


def test_times(capsys: pytest.CaptureFixture[str]) -> None:
    hook = TimePasses()
    run_passes(EMPTY, parse_passes("add,same"), Report(), [hook])
    hook.show()
    out, err = capsys.readouterr()
    assert not out
    assert [line.split()[-1] for line in err.splitlines()] == ["add", "same", "total"]
    assert [n for n, t in hook.times if t >= 0] == ["add", "same"]


def test_print_ir(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    _print_names(monkeypatch)
    run_passes(EMPTY, parse_passes("add,same"), Report(), [PrintIR(before=("same",), after=("same",))])
    out, err = capsys.readouterr()
    assert (out, err) == ("", "// -----// IR Dump Before same //----- //\nt0\n\n// -----// IR Dump After same //----- //\nt0\n\n")
    run_passes(EMPTY, parse_passes("add,same"), Report(), [PrintIR(after_change=True)])
    assert capsys.readouterr().err == "// -----// IR Dump After add //----- //\nt0\n\n"
    run_passes(EMPTY, parse_passes("add,same"), Report(), [PrintIR(after_all=True)])
    assert capsys.readouterr().err.count("// -----// IR Dump After") == 2
    with pytest.raises(UsageError, match="--print-ir-after: there is no pass 'sum'"):
        PrintIR(after=split_names("add, sum"))


def test_dump_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _print_names(monkeypatch)
    dump = DumpDir(tmp_path / "new" / "dump")
    run_passes(EMPTY, parse_passes("add,same"), Report(), [dump])
    dump.write("kernel.ll", "; text")
    found = {p.name: p.read_text() for p in dump.folder.iterdir()}
    assert found == {"00.input.plir": "\n", "01.add.plir": "t0\n", "02.same.plir": "t0\n", "03.kernel.ll": "; text"}
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--dump-dir: cannot write"):
        run_passes(EMPTY, (), Report(), [DumpDir(tmp_path / "file")])


@pytest.mark.parametrize("name", ["broken", "untrue"])
def test_crash_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _print_names(monkeypatch)
    (tmp_path / "other.plir").write_text("mine")
    (tmp_path / CRASH_FILE).symlink_to("other.plir")
    steps = parse_passes(f"add,{name}" + ("{rounds=3}" if name == "broken" else ""))
    with pytest.raises(InternalError, match=rf"in the pass '{name}'.*\n.*pipelinkc-crash.plir"):
        run_passes(EMPTY, steps, Report(), [VerifyEach(), CrashFile(("--target", "sm_75"))])
    text = (tmp_path / CRASH_FILE).read_text()
    assert text.splitlines()[0] == f"// pipelinkc failed in the pass '{name}'. This is the program that the pass was given."
    assert ("KeyError: 'oops'" if name == "broken" else "does not verify") in text
    asked = "'broken{rounds=3}'" if name == "broken" else "untrue"
    assert f"// To reproduce: pipelinkc pipelinkc-crash.plir -p {asked} --target sm_75" in text
    assert [line for line in text.splitlines() if not line.startswith("//")] == ["t0"]
    assert (tmp_path / "other.plir").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.plir", CRASH_FILE]


def test_a_crash_in_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _print_names(monkeypatch)
    (tmp_path / CRASH_FILE).mkdir()
    with pytest.raises(InternalError, match=r"KeyError: 'oops'.*\n\(no pipelinkc-crash.plir: "):
        run_passes(EMPTY, parse_passes("broken"), Report(), [CrashFile()])
    assert [p.name for p in tmp_path.iterdir()] == [CRASH_FILE]


def test_a_crash_of_a_module_that_cannot_be_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelink_ir.passes.hooks._text", lambda module: [][1])
    with pytest.raises(InternalError, match="KeyError: 'oops'"):
        run_passes(EMPTY, parse_passes("broken"), Report(), [CrashFile()])
    assert "// the program cannot be printed: IndexError" in (tmp_path / CRASH_FILE).read_text()


def test_imports_of_files_are_found_from_anywhere(tmp_path: Path) -> None:
    from pipelink_ir.ir.nodes import Import
    (tmp_path / "lib.plir").write_text("")
    module = Module((Import(file="lib.plir"), Import(file="missing.plir"), Import(module="std.image")), path=str(tmp_path / "main.plir"))
    assert [i.file for i in anchored(module).imports] == [str(tmp_path / "lib.plir"), "missing.plir", None]


def test_importing_the_manager_is_cheap() -> None:
    import subprocess
    code = "import sys, pipelink_ir.passes.manager, pipelink_ir.passes.hooks; print([m for m in ('numpy', 'lark', 'inspect', 'llvmlite') if m in sys.modules])"
    root = Path(manager.__file__).parents[1]
    root = root if (root / "pipelink_ir").is_dir() else root.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert not {"numpy", "lark", "llvmlite"} & set(done.stdout.replace("'", " ").replace("[", " ").replace("]", " ").replace(",", " ").split())
    assert step("add", rounds=4).options.rounds == 4


def _print_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A printer that shows the targets of a module, one a line."""
    monkeypatch.setattr("pipelink_ir.passes.hooks._text", lambda module: "\n".join(t.name for t in module.targets) + "\n")


def test_the_collector_waits_while_passes_run_and_is_as_it_was_before() -> None:
    import gc
    seen: list[bool] = []

    def look(step: object, before: object, after: object) -> None:
        seen.append(gc.isenabled())

    module = parse("op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] } }", "p.plir")
    run_passes(module, parse_passes("resolve"), Report(), [look])
    assert gc.isenabled()
    gc.disable()
    try:
        run_passes(module, parse_passes("resolve"), Report(), [look])
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert seen
    assert not any(seen)
