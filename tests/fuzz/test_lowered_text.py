"""The text of lowered random networks: it passes the verifier, and running all passes on it again changes nothing."""
from __future__ import annotations

import random
from collections import Counter

from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.nodes import Module, Node
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.verify import verify
from tests.fuzz.policies import network
from tests.fuzz.tape import LENGTH, Tape

ARCHS = ("sm_75", "sm_80", "sm_87", "sm_90")


def _lowered(text: str, arch: str) -> Module:
    passes = f"frontend,push-policies{{arch={arch}}},flatten,lower-precision{{arch={arch},price=false}}"
    return run_passes(parse(text.encode(), "test.plir"), parse_passes(passes), Report())


def test_lowered_networks_are_programs_that_stay_as_they_are() -> None:
    seen: Counter[str] = Counter()
    for n in range(40):
        arch = ARCHS[n % len(ARCHS)]
        case = network(Tape(random.Random(f"text:{n}").randbytes(LENGTH)), arch)
        try:
            module = _lowered(case.without_budgets, arch)
        except ProgramError as error:
            # Clauses that want calibrated ranges, and there is no file.
            assert {d.code for d in error.diagnostics if d.severity == "error"} == {"PL4201"}
            continue
        assert verify(module, "flatten") == []
        text = print_module(module)
        assert print_module(_lowered(text, arch)) == text
        seen.update(part.partition(":")[0] for p in module.pipelines for node in p.nodes if isinstance(node, Node) for part in (node.reason or "").split("; "))
    assert all(seen[kind] for kind in ("cast", "quantize", "lowered", "declined"))
