"""Results into arrays of the caller's: written through their strides, nothing beside them; or refused."""
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.runtime.forms import address_of
from tests.unit.runtime.programs import ADD, SPLIT, TWICE, matrix, twice

X = matrix(3, 4)


@pytest.fixture(scope="module", params=["cpu", "reference"])
def double(request: pytest.FixtureRequest) -> pl.Compiled:
    return pl.compile(TWICE, request.param)


TARGETS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "dense": ((3, 4), lambda b: b), "rows in the middle": ((5, 4), lambda b: b[1:4]), "transposed": ((4, 3), lambda b: b.T), "columns": ((3, 9), lambda b: b[:, 2:6]),
    "every second column": ((3, 8), lambda b: b[:, ::2]), "backwards": ((3, 4), lambda b: b[::-1, ::-1]), "every second row backwards": ((6, 4), lambda b: b[::-2]),
    "an odd address": ((14,), lambda b: b.view(np.uint8)[3:51].view(np.float32).reshape(3, 4)), "fortran order": ((12,), lambda b: b.reshape((3, 4), order="F")),
    "a view": ((3, 4), lambda b: pl.as_view(b)), "a strided view": ((3, 8), lambda b: pl.as_view(b[:, 1::2])),
    "a pointer": ((3, 4), lambda b: pl.from_raw_ptr(address_of(b), (3, 4), "f32", owner=b)),
}


@pytest.mark.parametrize("name", TARGETS)
def test_results_are_written_through_strides(double: pl.Compiled, name: str) -> None:
    shape, view = TARGETS[name]
    base = np.full(shape, -7, np.float32)
    target = view(base)
    before, written = base.copy(), np.zeros(base.nbytes, bool)
    array = np.asarray(target)
    # Every byte of the base that belongs to the target, by its address.
    for index in np.ndindex(3, 4):
        start = array.__array_interface__["data"][0] + sum(i * s for i, s in zip(index, array.strides, strict=True)) - address_of(base)
        written[start:start + 4] = True
    out = double(x=X, out=target)
    assert out.y is target
    np.testing.assert_array_equal(np.asarray(target), 2 * X)
    beside = base.reshape(-1).view(np.uint8)[~written]
    np.testing.assert_array_equal(beside, before.reshape(-1).view(np.uint8)[~written])


def test_ways_to_say_it(double: pl.Compiled) -> None:
    for give in (lambda a: a, lambda a: {"y": a}, lambda a: [a], lambda a: (a,)):
        target = np.zeros((3, 4), np.float32)
        assert double(x=X, out=give(target)).y is target
        np.testing.assert_array_equal(target, 2 * X)
    fresh = double(x=X, out={}).y
    np.testing.assert_array_equal(fresh, 2 * X)


def test_some_results_of_several() -> None:
    split = pl.compile(SPLIT)
    x = np.array([1.25, 2.5], np.float32)
    lo, hi = np.zeros(2, np.float32), np.zeros(4, np.float32)[::2]
    out = split(x=x, out={"hi": hi})
    assert out.hi is hi
    assert (out.lo.tolist(), hi.tolist()) == ([1, 2], [0.25, 0.5])
    out = split(x=2 * x, out=[lo, None])
    assert (out.lo is lo, lo.tolist(), out.hi.tolist()) == (True, [2, 5], [0.5, 0])
    with pytest.raises(pl.UsageError, match="no result '%low'; did you mean '%lo'"):
        split(x=x, out={"low": lo})
    with pytest.raises(pl.UsageError, match="1 arrays for the results lo, hi"):
        split(x=x, out=[lo])
    with pytest.raises(pl.UsageError, match="name the results"):
        split(x=x, out=lo)


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "stride 0": (lambda: np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (3, 4), (0, 4)), "contiguity", "repeats one element along axis 0"),
    "windows that overlap": (lambda: np.lib.stride_tricks.as_strided(np.zeros(9, np.float32), (3, 4), (4, 4)), "contiguity", "share memory"),
    "read-only": (lambda: np.broadcast_to(np.zeros((3, 4), np.float32), (3, 4)), "inplace", "read-only"),
    "f64": (lambda: np.zeros((3, 4)), "dtype", "f64[3, 4]"),
    "another shape": (lambda: np.zeros((4, 3), np.float32), "shape", "give an array of the shape [3, 4]"),
    "one row that could be repeated": (lambda: np.zeros((1, 4), np.float32), "shape", "[1, 4]"),
    "one axis less": (lambda: np.zeros(12, np.float32), "rank", "f32[12]"),
    "on a GPU": (lambda: pl.from_raw_ptr(4096, (3, 4), "f32", device="cuda:0"), "device", "on cuda:0"),
    "big-endian": (lambda: np.zeros((3, 4), ">f4"), "dtype", ">f4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_targets(double: pl.Compiled, name: str) -> None:
    make, field, said = REFUSED[name]
    target = make()
    with pytest.raises(pl.ContractViolationError) as caught:
        double(x=X, out=target)
    assert (caught.value.field, caught.value.edge) == (field, "y")
    assert said in str(caught.value)
    assert any(n.span.source.path == __file__ for n in caught.value.locations)


@pytest.mark.parametrize("thing", [[1.0, 2.0], 3.0, "text", object()])
def test_what_takes_no_result(double: pl.Compiled, thing: Any) -> None:
    with pytest.raises(pl.ExecutionError, match="cannot be written there"):
        double(x=X, out={"y": thing})


def test_memory_that_cannot_say_whether_it_is_read_only(double: pl.Compiled) -> None:
    """DLPack before version 1, as from a library of arrays that never change."""
    class Old:
        array = np.zeros((3, 4), np.float32)

        def __dlpack_device__(self) -> Any:
            return (1, 0)

        def __dlpack__(self) -> Any:
            return self.array.__dlpack__()

    with pytest.raises(pl.ContractViolationError, match="read-only"):
        double(x=X, out=Old())


class TestOverlap:
    """Results and other memory."""

    def test_a_result_over_an_input(self, double: pl.Compiled) -> None:
        base = np.zeros((6, 4), np.float32)
        for x, y in ((base[:3], base[:3]), (base[:3], base[2:5]), (base[:3], base[2:5][::-1]), (base[::2], base[:3])):
            with pytest.raises(pl.ContractViolationError) as caught:
                double(x=x, out=y)
            assert (caught.value.field, caught.value.got) == ("inplace", "memory of '%x'")
            assert base.max() == 0

    def test_arrays_side_by_side_or_interleaved_share_nothing(self, double: pl.Compiled) -> None:
        base = np.arange(24, dtype=np.float32).reshape(6, 4)
        for x, y in ((slice(0, 3), slice(3, 6)), (slice(0, None, 2), slice(1, None, 2))):
            block = base.copy()
            before = block[x].copy()
            double(x=block[x], out=block[y])
            np.testing.assert_array_equal(block[y], 2 * before)
            np.testing.assert_array_equal(block[x], before)

    def test_two_results_over_each_other(self) -> None:
        split, block = pl.compile(SPLIT), np.zeros(6, np.float32)
        for lo, hi in ((block[:4], block[2:]), (block[:4], block[:4])):
            with pytest.raises(pl.ContractViolationError, match="'%hi' and '%lo' overlap"):
                split(x=np.ones(4, np.float32), out=[lo, hi])

    @pytest.mark.parametrize("target", ["cpu", "reference"])
    def test_in_place_where_the_program_says_so(self, target: str) -> None:
        compiled = in_place(target)
        x = matrix(3, 4)
        out = compiled(x=x, out=x)
        assert out.y is x
        np.testing.assert_array_equal(x, 2 * matrix(3, 4))
        strided = matrix(3, 8)[:, ::2]
        before = strided.copy()
        compiled(x=strided, out=strided)
        np.testing.assert_array_equal(strided, 2 * before)

    def test_in_place_is_the_same_memory_and_no_other(self) -> None:
        base = np.ones((4, 4), np.float32)
        with pytest.raises(pl.ContractViolationError, match="overlaps the one for the input"):
            in_place("cpu")(x=base[:3], out=base[1:])
        assert base.min() == base.max() == 1

    def test_a_value_that_is_read_after_it_was_written_in_place(self) -> None:
        """y = log(x), then x = log(x) in place: both are log(3)."""
        program = ("op @log1(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { %y { inplace = %x } } compute { %y[n] = log(%x[n]) } }\n"
                   "op @log2(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 1 * log(%x[n]) } }\n"
                   "pipeline @main(%x: tensor<Nxf32>) -> (%a: tensor<Nxf32>, %b: tensor<Nxf32>) {\n  %a = @log1(%x)\n  %b = @log2(%x)\n}\n")
        x = np.array([3], np.float32)
        out = pl.compile(program)(x=x, out={"a": x})
        np.testing.assert_allclose([out.a[0], out.b[0]], np.log(3), rtol=1e-6)

    def test_an_argument_that_is_written_is_shared_with_no_other(self) -> None:
        add = pl.compile(ADD.replace("  compute", "  memory { %y { inplace = %a } }\n  compute"))
        base = np.ones(6, np.float32)
        with pytest.raises(pl.ContractViolationError, match="input '%b'"):
            add(a=base[:4], b=base[2:], out=base[:4])
        add(a=base[:4], b=np.ones(4, np.float32), out=base[:4])
        assert base.tolist() == [2, 2, 2, 2, 1, 1]


@cache
def in_place(target: str) -> pl.Compiled:
    return pl.compile(twice(inplace=True), target)


def test_a_later_run_leaves_earlier_results_alone(double: pl.Compiled) -> None:
    first = double(x=X).y
    target = np.zeros((3, 4), np.float32)
    second = double(x=X + 1, out=target).y
    third = double(x=X + 2).y
    for got, more in ((first, 0), (second, 1), (third, 2)):
        np.testing.assert_array_equal(got, 2 * (X + more))


def test_sizes_that_only_the_run_tells(double: pl.Compiled) -> None:
    """An empty matrix, and one of other sizes than the call before."""
    for shape in ((0, 4), (3, 0), (5, 2), (3, 4)):
        target = np.zeros(shape, np.float32)
        double(x=np.ones(shape, np.float32), out=target)
        np.testing.assert_array_equal(target, np.full(shape, 2, np.float32))
