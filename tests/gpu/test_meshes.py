"""Graphs of many nodes on a GPU, by the generator of `tests/fuzz`, with one stream, four, and eight: launches first, then the replayed graph."""
from __future__ import annotations

import pytest

import pipelink_ir as pl
from tests.fuzz.test_meshes import agree, meshes, options

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("streams", [1, 4, 8])
@pytest.mark.parametrize("fusion", ["fuse{nodes=1}", ""])
def test_meshes(fusion: str, streams: int) -> None:
    for seed, m, sizes in meshes(12 if fusion else 4):
        compiled = pl.compile(m.text, target="cuda", pass_options=options(fusion, f"assign-streams{{max_streams={streams}}}"))
        agree(compiled, m, [*sizes, *sizes], seed, f"cuda, {fusion} {streams} streams")
