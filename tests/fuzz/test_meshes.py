"""Graphs of many nodes on every backend, fused and not, with one stream, the usual number, and eight: NumPy's results to the bit."""
from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import IntLit, Module, Node, Setting
from pipelink_ir.passes.hooks import VerifyEach
from pipelink_ir.passes.manager import parse_passes, run_passes, with_options
from tests.emulated import NEEDS_COMPILER, prepare
from tests.fuzz.meshes import Mesh, mesh

STREAMS = ("assign-streams{max_streams=1}", "", "assign-streams{max_streams=8}")
FUSION = ("fuse{nodes=1}", "")
SIZES = ((7, 5), (1, 33), (64, 16))

BATCH = 16
"""Graphs whose kernels are compiled together."""


def meshes(count: int) -> Iterator[tuple[int, Mesh, list[tuple[int, int]]]]:
    """Graphs and the sizes to call each with."""
    for seed in range(count):
        size = 3 + seed % 14
        if seed % 2:
            yield seed, mesh(seed, size, SIZES[seed % 3]), [SIZES[seed % 3]]
        else:
            yield seed, mesh(seed, size), list(SIZES)


def options(*of: str) -> str:
    return ",".join(o for o in of if o)


def lowered(text: str, target: str, *of: str) -> Module:
    return run_passes(parse(text, "mesh.plir"), with_options(parse_passes(target), options(*of)), Report(), (VerifyEach(),))


def agree(compiled: pl.Compiled, m: Mesh, sizes: list[tuple[int, int]], seed: int, how: str) -> None:
    for n, k in sizes:
        for again in range(2):
            given = m.arrays(seed + again, n, k)
            got, before = compiled(**given), {name: a.copy() for name, a in given.items()}
            for name, want in m.expected(given).items():
                assert got[name].dtype == want.dtype
                assert np.array_equal(got[name], want), f"graph {seed}, {how}, N = {n}, M = {k}: %{name} is {got[name]}, not {want}\n{m.text}"
            assert all(np.array_equal(given[name], a) for name, a in before.items())


def test_reference_and_cpu(request: pytest.FixtureRequest) -> None:
    for seed, m, sizes in meshes(request.config.getoption("--fuzz-programs") or 16):
        agree(pl.compile(m.text, target="reference"), m, sizes, seed, "reference")
        for fusion in FUSION:
            agree(pl.compile(m.text, target="cpu", pass_options=options(fusion)), m, sizes, seed, f"cpu {fusion}")


@NEEDS_COMPILER
def test_emulated_cuda(request: pytest.FixtureRequest) -> None:
    ways = list(itertools.product(FUSION, STREAMS))
    found = list(meshes(request.config.getoption("--fuzz-programs") or 16))
    for begin in range(0, len(found), BATCH):
        batch = found[begin:begin + BATCH]
        prepare(lowered(m.text, "cuda", fusion) for _, m, _ in batch for fusion in FUSION)
        for seed, m, sizes in batch:
            for fusion, streams in ways:
                compiled = pl.compile(m.text, target="cuda-emulated", pass_options=options(fusion, streams))
                agree(compiled, m, sizes, seed, f"cuda-emulated {fusion} {streams}")


def test_streams_are_forced() -> None:
    """The options do what the comparisons rely on: with eight streams there are plans with many, with one there are none."""
    most = {}
    for streams in STREAMS:
        modules = [lowered(m.text, "cuda", "fuse{nodes=1}", streams) for _, m, _ in meshes(16)]
        plans = [n.plan for module in modules for p in module.pipelines for n in p.nodes if isinstance(n, Node) and n.plan is not None]
        most[streams] = max(s.value.value for plan in plans for s in plan.entries
                            if isinstance(s, Setting) and s.key == "stream" and isinstance(s.value, IntLit))
    assert most[STREAMS[0]] == 0
    assert most[STREAMS[1]] == 3
    assert most[STREAMS[2]] > 3
