"""An arena of the caller's: its size, what is refused, and that nothing else is used."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.backends.cpu import memory
from pipelink_ir.ir.diagnostics import ExecutionError

OPS = """
op @s(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { memory { border = wrap } compute { %y[n, k] = %x[n, k + 1] + sum[i < K](%x[n, i]) } }
op @j(%a: tensor<NxKxf32>, %b: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { compute { %y[n, k] = %a[n, k] - %b[n, k] } }
"""
NET = OPS + """pipeline @net(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  %a = @s(%x)  %b = @s(%a)  %c = @j(%b, %a)  %d = @s(%c)  %y = @j(%d, %b)
}"""
PASSES = "resolve,infer-types,flatten,assign-streams,alias-buffers,verify-plan"


def worked_out(x: Any) -> Any:
    def s(x: Any) -> Any:
        return np.roll(x, -1, 1) + x.sum(1, keepdims=True)
    a = s(x.astype(np.float64))
    b = s(a)
    return s(b - a) - b


def aligned(size: int, align: int = 256) -> Any:
    block = np.empty(size + align, np.uint8)
    begin = -block.ctypes.data % align
    return block[begin:begin + size]


@pytest.fixture(params=["cpu", "cuda-emulated"])
def net(request: pytest.FixtureRequest) -> pl.Compiled:
    return pl.compile(NET, request.param, passes=PASSES)


X = np.arange(24, dtype=np.float32).reshape(4, 6) % 7


def test_the_size_is_asked_for_with_shapes_or_arrays(net: pl.Compiled) -> None:
    size = net.arena_bytes(x=(4, 6))
    # Of %a, %b, %c, %d three live together, and each has 96 bytes.
    align = 64 if net.target.name == "cpu" else 256
    assert size >= 3 * -(-96 // align) * align
    assert net.arena_bytes(x=X) == size
    assert net.arena_bytes(x=(400, 60)) > 3 * 4 * 400 * 60 - 1
    with pytest.raises(ExecutionError, match="is missing"):
        net.arena_bytes()
    with pytest.raises(ExecutionError, match="no input '%z'"):
        net.arena_bytes(z=(4, 6))
    with pytest.raises(ExecutionError, match="neither an array nor a shape"):
        net.arena_bytes(x="4x6")
    with pytest.raises(ExecutionError, match="axes"):
        net.arena_bytes(x=(4, 6, 1))
    for shape in ("46", (4.5, 6), ("4", "6"), 4):
        with pytest.raises(ExecutionError, match="neither an array nor a shape"):
            net.arena_bytes(x=shape)
    with pytest.raises(ExecutionError, match="a size is negative"):
        net.explain(x=(-4, 6))
    for n in (1 << 58, 1 << 64):
        with pytest.raises(ExecutionError, match="more than memory can have") as caught:
            net.arena_bytes(x=(n, 6))
        assert caught.value.diagnostics[0].code == "PL6201"


def test_shapes_that_do_not_fit_each_other_are_refused_without_an_arena_too() -> None:
    p = pl.compile(OPS + "pipeline @p(%a: tensor<NxKxf32>, %b: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { %y = @j(%a, %b) }", "reference")
    assert p.arena_bytes(a=(2, 3), b=(2, 3)) == 0
    with pytest.raises(ExecutionError, match=r"'%b' cannot have the shape \[2, 4\]: axis 1 is 4, but K is 3"):
        p.arena_bytes(a=(2, 3), b=(2, 4))


def test_sizes_that_the_signature_knows_are_not_asked_for() -> None:
    fixed = pl.compile(NET.replace("pipeline @net(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>)", "pipeline @net(%x: tensor<4x6xf32>) -> (%y: tensor<4x6xf32>)"),
                       "cpu", passes=PASSES)
    assert fixed.arena_bytes() == fixed.arena_bytes(x=X) > 0


def test_a_run_in_an_arena(net: pl.Compiled) -> None:
    size = net.arena_bytes(x=X)
    arena = aligned(size)
    for n in range(3):
        arena[...] = n
        np.testing.assert_array_equal(net(x=X + n, arena=arena).y, worked_out(X + n))
    other = aligned(size)
    np.testing.assert_array_equal(net(x=X, arena=other).y, worked_out(X))
    np.testing.assert_array_equal(net(x=X).y, worked_out(X))
    assert net(x=X, arena=aligned(size + 4096).view(np.float32)).y.shape == (4, 6)


def test_nothing_beyond_the_arena_is_written(net: pl.Compiled) -> None:
    size = net.arena_bytes(x=X)
    block = aligned(size + 512)
    block[...] = 0x5A
    net(x=X, arena=block[256:256 + size])
    assert (block[:256] == 0x5A).all()
    assert (block[256 + size:] == 0x5A).all()
    assert (block[256:256 + size] != 0x5A).any()


def test_an_arena_is_used_instead_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    net = pl.compile(NET, "cpu", passes=PASSES)
    size = net.arena_bytes(x=X)

    def refuse(size: int) -> Any:
        raise AssertionError("memory was taken")

    monkeypatch.setattr(memory, "_take", refuse)
    np.testing.assert_array_equal(net(x=X, arena=aligned(size)).y, worked_out(X))
    with pytest.raises(Exception, match="memory was taken"):
        net(x=X)


def test_what_is_refused(net: pl.Compiled) -> None:
    size = net.arena_bytes(x=X)
    block = aligned(4 * size + 4096)
    frozen = aligned(size)
    frozen.flags.writeable = False
    inside = block[512:512 + X.nbytes].view(np.float32).reshape(X.shape)
    inside[...] = X
    for arena, message, more in (
            (block[:size - 1], f"has {size - 1} bytes, and {size} are needed", {}), (block[8:8 + size], "no multiple of", {}),
            (block[::2], "gaps", {}), (frozen, "read-only", {}), ([0] * size, "no memory", {}), (b"", "arena", {}),
            (block, "overlaps the input '%x'", {"x": inside}), (block, "overlaps the array for the result '%y'", {"out": inside})):
        with pytest.raises(ExecutionError, match=message) as caught:
            net(**{"x": X, "arena": arena, **more})
        assert caught.value.diagnostics[0].field == "arena"


def test_a_target_without_an_arena() -> None:
    net = pl.compile(NET, "reference")
    assert net.arena_bytes(x=X) == 0
    np.testing.assert_array_equal(net(x=X, arena=aligned(0)).y, worked_out(X))


def test_an_input_that_is_called_arena() -> None:
    net = pl.compile(NET.replace("%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {\n", "%arena: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {\n").replace(
        "@s(%x)", "@s(%arena)"), "cpu", passes=PASSES)
    np.testing.assert_array_equal(net(arena=X).y, worked_out(X))


def test_what_is_said_of_memory(net: pl.Compiled) -> None:
    said = net.explain(x=X).splitlines()
    size = net.arena_bytes(x=X)
    assert any(f"peak {size} bytes, lower bound" in line for line in said)
    assert any(line.endswith("%a then %c in place") for line in said)
    before = net.explain()
    assert "whose sizes the call decides" in before
    assert "%a then %c in place: 4 * K * N bytes" in before


def test_who_shares_with_whom() -> None:
    chain = OPS + "pipeline @p(%x: tensor<4x6xf32>) -> (%y: tensor<4x6xf32>) { %a = @s(%x) %b = @s(%a) %c = @s(%b) %y = @s(%c) }"
    said = pl.compile(chain, "cpu", passes="resolve,infer-types,flatten,assign-streams{max_streams=1},alias-buffers{device=cpu},verify-plan").explain()
    assert "memory: cpu: peak 256 bytes, lower bound 256, 1.000x, 3 buffers" in said
    assert "%a, shares bytes with %c" in said


def test_a_packing_that_is_wrong_is_found_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelink_ir.backends import memory as arenas
    from pipelink_ir.ir.diagnostics import InternalError
    wrong = pl.compile(NET, "cpu", passes=PASSES)
    monkeypatch.setattr(arenas, "pack", lambda lives, *more: ([0] * len(lives), max(life.size for life in lives)))
    with pytest.raises(InternalError, match="share bytes"):
        wrong(x=X)
    monkeypatch.setattr(arenas, "pack", lambda lives, *more: ([256 * k for k in range(len(lives))], 256))
    with pytest.raises(InternalError, match="which has 256 bytes"):
        wrong(x=X)


def test_a_place_of_a_user_that_is_too_small_for_the_call() -> None:
    text = NET.replace("%a = @s(%x)", '%a = @s(%x) plan { %a { arena = "cpu", offset = 0, bytes = 64 } }')
    p = pl.compile(text, "cpu", passes="resolve,infer-types,flatten")
    small = np.ones((2, 6), np.float32)
    np.testing.assert_array_equal(p(x=small).y, worked_out(small))
    with pytest.raises(ExecutionError, match="64 bytes, and it has 96") as caught:
        p(x=X)
    assert caught.value.diagnostics[0].field == "arena"
