"""Every construct of the language, as a small program with values from an independent source, on every backend."""
from __future__ import annotations

import dataclasses
import functools
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir import nodes
from pipelink_ir.ir.diagnostics import ExecutionError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import CONSTANTS, FUNCTIONS, REDUCTIONS, RESERVED
from pipelink_ir.runtime.compile import read
from tests.constructs import borders, definitions, dtypes, functions, lexical, pipelines, recurrences, reductions, types
from tests.constructs.case import TARGETS, Case
from tests.constructs.checklist import CHECKLIST, ELSEWHERE
from tests.emulated import lowered, prepare

ROOT = Path(__file__).resolve().parents[2]
MODULES = (lexical, types, dtypes, functions, definitions, reductions, recurrences, borders, pipelines)
CASES: list[Case] = [case for module in MODULES for case in module.CASES]


@functools.cache
def _compile_for_emulation() -> None:
    """The kernels of all programs at once. Those of users are compiled where they are used."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [case.write(Path(folder) / str(n)) for n, case in enumerate(CASES) if not any(name.endswith(".cu") for name in case.files)]
        prepare(lowered(read(path)) for path in paths)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values(case: Case, target: str, tmp_path: Path) -> None:
    if target == "cuda-emulated":
        _compile_for_emulation()
    if case.fails:
        with pytest.raises(ExecutionError) as caught:
            case.run(target, tmp_path)
        assert case.fails in str(caught.value)
        return
    case.compare(case.run(target, tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_round_trip(case: Case) -> None:
    module = parse(case.source, "case.plir")
    printed = print_module(module)
    assert parse(printed, "printed.plir") == module
    assert print_module(parse(printed, "printed.plir")) == printed


# ------------------------------------------------------------------------------------------------------------------------ coverage


def test_every_construct_of_the_list_is_covered() -> None:
    listed = [name for names in CHECKLIST.values() for name in names]
    covered = {name for case in CASES if not case.fails for name in case.constructs}
    errors = {name for case in CASES if case.fails for name in case.constructs}
    only_errors = {"what does not divide is a shape error"}
    assert len(set(listed)) == len(listed)
    assert set(listed) - covered == only_errors
    assert only_errors <= errors
    assert (covered | errors) - set(listed) == set()


def test_what_stands_elsewhere_stands_there() -> None:
    for where, word in ELSEWHERE.values():
        assert word in (ROOT / where).read_text(encoding="utf-8"), (where, word)


def _parts(node: object) -> Iterator[object]:
    """A node and all that it is made of."""
    todo = [node]
    while todo:
        x = todo.pop()
        yield x
        if isinstance(x, tuple):
            todo += x
        elif dataclasses.is_dataclass(x) and not isinstance(x, type):
            todo += [getattr(x, f.name) for f in dataclasses.fields(x) if f.name not in ("span", "dtype", "source")]


def test_every_node_of_the_ir_and_every_name_of_the_tables_occurs() -> None:
    """Beside the list: nothing that the IR can hold, no function, reduction, constant, dtype, section or clause of a node is without a program."""
    seen: set[str] = set()
    words: set[str] = set()
    for case in CASES:
        if case.fails:
            continue
        for x in _parts(parse(case.source, "case.plir")):
            seen.add(type(x).__name__)
            if isinstance(x, nodes.Apply):
                words.add(x.fn)
            elif isinstance(x, nodes.Reduce):
                words.add(x.kind)
            elif isinstance(x, nodes.Const):
                words.add(x.name)
            elif isinstance(x, nodes.Cast):
                words.add(("sat_" if x.saturate else "") + x.to)
            elif isinstance(x, nodes.TensorType):
                words.add("tensor of " + x.dtype)
            elif isinstance(x, nodes.Section):
                words.add("section " + x.name)
            elif isinstance(x, nodes.Attribute):
                words.add("attribute of " + x.type)
    abstract = {"Expr"}
    classes = {name for name, c in vars(nodes).items() if isinstance(c, type) and dataclasses.is_dataclass(c) and c.__module__ == nodes.__name__}
    assert classes - abstract - seen == set()
    wanted = {*FUNCTIONS, *REDUCTIONS, *CONSTANTS, *DTYPES, *(f"sat_{d.name}" for d in DTYPES.values() if d.is_int), *(f"tensor of {d}" for d in DTYPES), *(f"attribute of {d}" for d in DTYPES)}
    wanted |= {"attribute of dim", "attribute of word", "attribute of dtype", *(f"section {s}" for s in ("memory", "execution", "semantic", "compile", "schedule", "plan"))}
    assert wanted - words == {"fma"}        # which `simplify` writes


def test_every_reserved_word_is_used() -> None:
    text = "\n".join(case.source for case in CASES if not case.fails)
    assert {w for w in RESERVED if not re.search(rf"\b{w}\b", text)} == set()


def test_the_tables_of_the_language_page_are_on_the_list() -> None:
    """Every word between backticks in the tables of docs/language.md is used by some program, or is an example of a value."""
    page = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    text = "\n".join(case.source for case in CASES)
    spelled = {w for row in re.findall(r"^\|.*\|$", page, re.MULTILINE) for w in re.findall(r"`([a-z_0-9]+)`", row)}
    assert len(spelled) > 40
    assert {w for w in spelled if not re.search(rf"\b{w}\b", text)} == set()
