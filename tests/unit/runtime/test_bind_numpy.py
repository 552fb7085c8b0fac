"""NumPy arrays at the call: accepted as they are, refused with a precise error, or copied where that is allowed; never a wrong result."""
from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pipelink_ir as pl
from pipelink_ir.runtime.forms import address_of
from tests.unit.runtime.programs import ADD, TWICE, matrix, twice

as_strided = np.lib.stride_tricks.as_strided


def odd(array: Any, offset: int = 1) -> Any:
    """The same values at an address that is `offset` bytes beyond a multiple of 64."""
    block = np.zeros(array.nbytes + 128, np.uint8)
    start = -address_of(block) % 64 + offset
    out = block[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


ACCEPTED: dict[str, tuple[Callable[[], Any], bool]] = {
    # name: array, whether the CPU backend has to copy it
    "dense": (lambda: matrix(3, 4), False),
    "rows in the middle": (lambda: matrix(5, 4)[1:4], False),
    "transposed": (lambda: matrix(4, 3).T, True),
    "fortran order": (lambda: np.asfortranarray(matrix(3, 4)), True),
    "columns cut off": (lambda: matrix(2, 5)[:, :4], True),
    "columns in the middle": (lambda: matrix(3, 9)[:, 3:7], True),
    "every second column": (lambda: matrix(3, 8)[:, ::2], True),
    "every second row": (lambda: matrix(6, 4)[::2], True),
    "rows backwards": (lambda: matrix(3, 4)[::-1], True),
    "columns backwards": (lambda: matrix(3, 4)[:, ::-1], True),
    "both backwards": (lambda: matrix(3, 4)[::-1, ::-1], True),
    "rows backwards in steps": (lambda: matrix(7, 4)[::-3], True),
    "one row repeated": (lambda: np.broadcast_to(matrix(1, 4), (3, 4)), True),
    "one column repeated": (lambda: np.broadcast_to(matrix(3, 1), (3, 4)), True),
    "one value repeated": (lambda: np.broadcast_to(np.float32(7), (3, 4)), True),
    "windows that overlap": (lambda: np.lib.stride_tricks.sliding_window_view(np.arange(6, dtype=np.float32), 4), True),
    "a diagonal": (lambda: np.diagonal(np.arange(48, dtype=np.float32).reshape(4, 3, 4)).T[:3], True),
    "part of a record": (lambda: np.array([(k, k / 2) for k in range(12)], [("a", "u1"), ("b", "<f4")])["b"].reshape(3, 4), True),
    "an odd address": (lambda: odd(matrix(3, 4)), True),
    "an address of 2 bytes": (lambda: odd(matrix(3, 4), 2), True),
    "an address of 4 bytes": (lambda: odd(matrix(3, 4), 4), False),
    "odd and backwards": (lambda: odd(matrix(3, 4), 3)[::-1], True),
    "one row": (lambda: matrix(1, 5), False),
    "one column": (lambda: matrix(5, 1), False),
    "one column of many": (lambda: matrix(5, 6)[:, 2:3], True),
    "one element": (lambda: matrix(1, 1), False),
    "axes of size 1 with wild strides": (lambda: as_strided(matrix(1, 4), (1, 4), (99999, 4)), False),
    "no rows": (lambda: np.zeros((0, 4), np.float32), False),
    "no columns": (lambda: np.zeros((3, 0), np.float32), False),
    "no rows, strange strides": (lambda: matrix(6, 8)[6:, ::-2], False),
    "read-only": (lambda: _locked(matrix(3, 4)), False),
    "read-only and transposed": (lambda: _locked(matrix(4, 3)).T, True),
    "a list of numbers": (lambda: [[np.float32(1), np.float32(2)], [np.float32(3), np.float32(4)]], False),
    "a memory map": (lambda: matrix(3, 4).view(np.memmap), False),
    "a subclass": (lambda: matrix(3, 4).view(type("Own", (np.ndarray,), {})), False),
    "a view of a view": (lambda: pl.as_view(matrix(4, 6))._carrier("<f4")[1:, ::2], True),
    "a TensorView": (lambda: pl.as_view(matrix(3, 4)), False),
    "a strided TensorView": (lambda: pl.as_view(matrix(3, 8)[:, 1::2]), True),
    "a pitched TensorView": (lambda: _filled(pl.TensorBuilder((3, 5), "f32", pitch=64).allocate()), True),
    "a pointer": (lambda: _raw(matrix(3, 4)), False),
    "a pointer that goes backwards": (lambda: _raw(matrix(3, 4), (-4, 1), 32), True),
}


def _locked(array: Any) -> Any:
    array.flags.writeable = False
    return array


def _filled(view: pl.TensorView) -> pl.TensorView:
    np.asarray(view)[...] = np.arange(view.size).reshape(view.shape)
    return view


def _raw(base: Any, strides: tuple[int, ...] | None = None, offset: int = 0) -> pl.TensorView:
    return pl.from_raw_ptr(address_of(base) + offset, base.shape, "f32", strides=strides, owner=base)


@pytest.fixture(scope="module", params=["cpu", "reference"])
def double(request: pytest.FixtureRequest) -> pl.Compiled:
    return pl.compile(TWICE, request.param)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_arrays_are_read_right(double: pl.Compiled, name: str) -> None:
    make, copied = ACCEPTED[name]
    array = make()
    before = np.array(array)
    for _ in range(3):      # the second time the form is known, the third time the object is
        np.testing.assert_array_equal(double(x=array).y, 2 * before, strict=True)
    np.testing.assert_array_equal(np.array(array), before)
    bound = double.check({"x": array})
    assert bool(bound.entries) == copied
    assert all(e.kind == "copy" and e.bytes == str(before.nbytes) for e in bound.entries)
    fresh = make()
    np.testing.assert_array_equal(double(x=fresh).y, 2 * before, strict=True)


def test_enough_kinds_of_arrays_are_tried() -> None:
    assert len(ACCEPTED) >= 40


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    # name: array, field, what the message says
    "f64": (lambda: np.zeros((3, 4)), "dtype", "the array is f64[3, 4]"),
    "f16": (lambda: np.zeros((3, 4), np.float16), "dtype", "the array is f16[3, 4]"),
    "big-endian": (lambda: np.zeros((3, 4), ">f4"), "dtype", "the array is >f4[3, 4]"),
    "complex": (lambda: np.zeros((3, 4), complex), "dtype", "complex128[3, 4]"),
    "objects": (lambda: np.zeros((3, 4), object), "dtype", "object[3, 4]"),
    "dates": (lambda: np.zeros((3, 4), "M8[s]"), "dtype", "datetime64"),
    "u32": (lambda: np.zeros((3, 4), np.uint32), "dtype", "uint32[3, 4]"),
    "bf16": (lambda: np.zeros((3, 4), ml_dtypes.bfloat16), "dtype", "the array is bf16[3, 4]"),
    "records": (lambda: np.zeros((3, 4), [("a", "f4")]), "dtype", "[3, 4]"),
    "one axis": (lambda: np.zeros(4, np.float32), "rank", "has 1"),
    "three axes": (lambda: np.zeros((1, 3, 4), np.float32), "rank", "has 3"),
    "a number": (lambda: np.float32(3), "rank", "has 0"),
    "a Python float": (lambda: 3.0, "dtype", "f64[]"),
    "a dtype's view": (lambda: matrix(3, 4).view(np.int32), "dtype", "i32[3, 4]"),
    "on a GPU": (lambda: pl.from_raw_ptr(4096, (3, 4), "f32", device="cuda:2"), "device", "on cuda:2"),
    "a TensorView of f64": (lambda: pl.as_view(np.zeros((3, 4))), "dtype", "the array is f64[3, 4]"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("copies", ["refuse", "allow"])
def test_refused_arrays_are_named(double: pl.Compiled, name: str, copies: str) -> None:
    """Nothing of this kind is converted, whether copies are allowed or not."""
    make, field, said = REFUSED[name]
    array = make()
    with pytest.raises(pl.ContractViolationError) as caught:
        double(x=array, copies=copies)
    error = caught.value
    assert (error.field, error.edge) == (field, "x")
    assert said in str(error)
    assert "%x" in error.diagnostics[0].message
    assert error.diagnostics[0].help
    lines = {(n.span.source.path, n.span.line) for n in error.locations}
    assert any(path == __file__ for path, _ in lines)


@pytest.mark.parametrize("thing", [np.ma.masked_array(matrix(3, 4), mask=matrix(3, 4) > 2), None, "text", object(), {"a": 1}, [[1.0], [1.0, 2.0]]])
def test_what_is_no_array(double: pl.Compiled, thing: Any) -> None:
    with pytest.raises(pl.ExecutionError, match=r"masked|no array here|PLIR does not|the array is <U4|the array is object"):
        double(x=thing)


@cache
def compiled_text(text: str) -> pl.Compiled:
    return pl.compile(text)


def contiguous(asked: str) -> pl.Compiled:
    return compiled_text(twice(contiguity=asked))


class TestContiguity:
    """What `dense`, `rows` and `any` admit, refuse, and copy where that is allowed."""

    CASES: tuple[tuple[str, Callable[[], Any], str], ...] = (
        ("dense", lambda: matrix(3, 4), "dense"), ("pitched", lambda: matrix(3, 8)[:, :4], "rows"), ("every second row", lambda: matrix(6, 4)[::2], "rows"),
        ("transposed", lambda: matrix(4, 3).T, "any"), ("backwards", lambda: matrix(3, 4)[::-1], "any"), ("stepped", lambda: matrix(3, 8)[:, ::2], "any"),
        ("repeated", lambda: np.broadcast_to(matrix(1, 4), (3, 4)), "any"), ("one column", lambda: matrix(4, 6)[:, 1:2], "rows"),
        ("empty", lambda: matrix(3, 8)[:, 8::2], "dense"), ("one row", lambda: matrix(3, 4)[1:2], "dense"),
        ("pitched view", lambda: pl.TensorBuilder((3, 5), "f32", pitch=32).allocate(), "rows"),
    )
    ORDER = ("any", "rows", "dense")

    @pytest.mark.parametrize("asked", ORDER)
    @pytest.mark.parametrize("case", CASES, ids=lambda c: c[0].replace(" ", "-"))
    def test_as_strict_as_asked(self, asked: str, case: tuple[str, Callable[[], Any], str]) -> None:
        compiled = contiguous(asked)
        _, make, kind = case
        array = make()
        wanted = 2 * np.array(array)
        if self.ORDER.index(kind) >= self.ORDER.index(asked):
            np.testing.assert_array_equal(compiled(x=array).y, wanted, strict=True)
            return
        with pytest.raises(pl.ContractViolationError) as caught:
            compiled(x=array)
        assert (caught.value.field, caught.value.operator, caught.value.expected) == ("contiguity", "twice", asked)
        assert caught.value.got.startswith(kind)
        assert any(n.message == f"'@twice' asks for '{asked}' here" and n.span.line == 2 for n in caught.value.locations)
        for _ in range(2):
            np.testing.assert_array_equal(compiled(x=array, copies="allow").y, wanted, strict=True)
        entry, = compiled.check({"x": array}, copies="allow").entries
        assert entry.kind == "copy"
        assert f"asks for '{asked}'" in entry.reason
        with pytest.raises(pl.ContractViolationError):       # what was allowed once is not allowed for good
            compiled(x=array)

    def test_the_project_or_the_program_may_allow(self) -> None:
        allowing = pl.compile(twice(contiguity="dense"), copies="allow")
        np.testing.assert_array_equal(allowing(x=matrix(4, 3).T).y, 2 * matrix(4, 3).T)
        with pytest.raises(pl.ContractViolationError):
            allowing(x=matrix(4, 3).T, copies="refuse")
        with pytest.raises(pl.UsageError, match="'allow' or 'refuse'"):
            pl.compile(TWICE, copies="sometimes")

    def test_a_reader_behind_a_second_name_counts(self) -> None:
        program = twice(contiguity="dense").replace("  %y = @twice(%x)\n", "  %z = %x\n  %y = @twice(%z)\n")
        with pytest.raises(pl.ContractViolationError, match="asks for 'dense' here"):
            pl.compile(program)(x=matrix(4, 3).T)

    @pytest.mark.parametrize("target", ["cpu", "reference"])
    def test_a_reader_inside_a_graph_counts_and_the_graph_itself(self, target: str) -> None:
        graph = "op @outer(%v: tensor<HxWxf32>) -> (%w: tensor<HxWxf32>) {\n  graph { %w = @twice(%v) }\n}\n"
        inner = twice(contiguity="dense").replace("pipeline", graph + "pipeline").replace("%y = @twice(%x)\n}", "%y = @outer(%x)\n}")
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(inner, target)(x=matrix(4, 3).T)
        assert caught.value.operator == "twice"
        outer = TWICE.replace("pipeline", graph.replace("  graph", "  memory { %v { contiguity = rows } }\n  graph") + "pipeline")
        outer = outer.replace("%y = @twice(%x)\n}", "%y = @outer(%x)\n}")
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(outer, target)(x=matrix(4, 3).T)
        assert (caught.value.operator, caught.value.expected) == ("outer", "rows")


class TestPitch:
    """Pad bytes are neither read nor written."""

    @pytest.mark.parametrize("width", range(1, 34))
    def test_rows_of_images(self, width: int) -> None:
        compiled = compiled_text(twice("u8", contiguity="rows").replace("HxW", "HxWx3").replace("[h, w]", "[h, w, c]"))
        pitch = (3 * width + 31) // 32 * 32
        block = np.full(2 * pitch, 250, np.uint8)
        image = as_strided(block, (2, width, 3), (pitch, 3, 1))
        image[...] = np.arange(image.size).reshape(image.shape) % 100
        before = block.copy()
        np.testing.assert_array_equal(compiled(x=image).y, 2 * np.array(image), strict=True)
        np.testing.assert_array_equal(block, before)


class TestLayout:
    """Names of axes, where both sides say them."""

    def test_layouts_that_agree_or_are_not_said(self) -> None:
        compiled = pl.compile(twice(layout="HW"))
        for view in (pl.as_view(matrix(2, 3), layout="HW"), pl.as_view(matrix(2, 3)), matrix(2, 3)):
            np.testing.assert_array_equal(compiled(x=view).y, 2 * matrix(2, 3))

    def test_another_layout_than_the_signature(self) -> None:
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(twice(layout="HW"))(x=pl.as_view(matrix(2, 3), layout="WH"))
        error = caught.value
        assert (error.field, error.expected, error.got, error.edge) == ("layout", "HW", "WH", "x")
        assert ".transpose(1, 0)" in (error.diagnostics[0].help or "")

    def test_another_layout_than_the_reader(self) -> None:
        """The signature of the pipeline says nothing; the operator does."""
        head, tail = twice(layout="HW").split("pipeline")
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(head + "pipeline" + tail.replace(", HW", ""))(x=pl.as_view(matrix(2, 3), layout="WH"))
        assert (caught.value.field, caught.value.operator) == ("layout", "twice")

    def test_a_known_form_with_another_layout_is_checked(self) -> None:
        compiled = pl.compile(twice(layout="HW"))
        array = matrix(2, 3)
        for _ in range(3):
            compiled(x=pl.as_view(array, layout="HW"))
            with pytest.raises(pl.ContractViolationError):
                compiled(x=pl.as_view(array, layout="WH"))


class TestTogether:
    """Several arrays at one call."""

    def test_the_same_array_twice_and_overlapping_ones_are_read(self) -> None:
        add = pl.compile(ADD)
        base = np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(add(a=base, b=base).y, 2 * base)
        np.testing.assert_array_equal(add(a=base[:4], b=base[2:]).y, base[:4] + base[2:])
        np.testing.assert_array_equal(add(a=base, b=base[::-1]).y, np.full(6, 5, np.float32))

    def test_sizes_that_disagree_name_both(self) -> None:
        add = pl.compile(ADD)
        with pytest.raises(pl.ContractViolationError) as caught:
            add(a=np.zeros(3, np.float32), b=np.zeros(4, np.float32))
        assert (caught.value.field, caught.value.edge, caught.value.got) == ("shape", "b", "[4]")
        assert "N comes from '%a'" in str(caught.value)

    def test_results_never_alias_arguments(self) -> None:
        same = pl.compile("pipeline @main(%x: tensor<Nxf32>) -> (%zero: tensor<Nxf32>, %y: tensor<Nxf32>) {\n  %zero = @f(%x)\n  %y = %x\n}\n"
                          "op @f(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = 0 * %x[n] } }\n")
        x = np.array([2.3], np.float32)
        out = same(x=x)
        assert (out.zero.tolist(), out.y.tolist()) == ([0], x.tolist())
        assert not np.shares_memory(out.y, x)


class TestKnownForms:
    """A decision is taken again only for arrays that it holds for."""

    def test_objects_that_change_between_calls(self, double: pl.Compiled) -> None:
        x = np.ones((3, 4), np.float32)
        for _ in range(3):
            double(x=x)
        x[...] = 5
        np.testing.assert_array_equal(double(x=x).y, np.full((3, 4), 10, np.float32))
        x.resize((4, 4), refcheck=False)            # other memory, another shape, the same object
        x[...] = 6
        np.testing.assert_array_equal(double(x=x).y, np.full((4, 4), 12, np.float32))

    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_an_object_whose_dtype_or_shape_is_assigned(self, double: pl.Compiled) -> None:
        x = matrix(2, 6)
        for _ in range(3):
            double(x=x)
        x.shape = (4, 3)
        np.testing.assert_array_equal(double(x=x).y, 2 * np.arange(12, dtype=np.float32).reshape(4, 3))
        x.dtype = np.dtype(np.int32)
        with pytest.raises(pl.ContractViolationError, match=r"i32\[4, 3\]"):
            double(x=x)

    def test_an_aligned_decision_is_not_reused_for_odd_addresses(self) -> None:
        compiled = pl.compile(twice("f16"))
        for offset in (0, 1, 2, 0, 3):
            x = odd(np.arange(66, dtype=np.float16).reshape(2, 33), offset)
            for _ in range(3):
                np.testing.assert_array_equal(compiled(x=x).y, 2 * np.arange(66, dtype=np.float16).reshape(2, 33))

    def test_more_forms_than_are_kept(self, double: pl.Compiled) -> None:
        for k in range(300):
            x = np.ones((1, k), np.float32)
            assert double(x=x).y.shape == (1, k)
        assert len(double.binder._forms) <= 256

    def test_a_view_whose_array_moved_is_refused(self, double: pl.Compiled) -> None:
        x = np.ones((3, 4), np.float32)
        view = pl.as_view(x)
        np.testing.assert_array_equal(double(x=view).y, 2 * x)
        x.resize((300, 400), refcheck=False)
        with pytest.raises(pl.ContractViolationError, match="another form by now"):
            double(x=view)

    def test_threads_share_a_binder(self) -> None:
        add, wrong = pl.compile(ADD), []

        def work(seed: int) -> None:
            a = np.full(50 + seed % 3, seed, np.float32)
            for _ in range(200):
                if not (add(a=a, b=a[::-1]).y == 2 * seed).all():
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong


def test_inputs_named_like_options() -> None:
    text = ADD.replace("%a", "%out").replace("%b", "%copies")
    one, two = np.ones(3, np.float32), np.full(3, 2, np.float32)
    np.testing.assert_array_equal(pl.compile(text)(out=one, copies=two).y, one + two)
    with pytest.raises(pl.ExecutionError, match="is missing"):
        pl.compile(text)(out=one)


def test_nothing_where_an_object_was_before() -> None:
    """The references to objects of the last call are dead, and None is given: that is no array, and not the array that is gone."""
    compiled = pl.compile(TWICE)
    for make in (lambda: matrix(2, 2), lambda: pl.as_view(matrix(2, 2)), lambda: pl.TensorBuilder((2, 2), "f32").allocate()):
        array = make()
        for _ in range(4):
            compiled(x=array)
        del array
        with pytest.raises(pl.ExecutionError):
            compiled(x=None)


class TestAlignment:
    """`align` is asked of arrays that are used in place on a GPU, and of nobody else. The memory itself is not touched here."""

    PROGRAM = TWICE.replace("  compute", "  memory { %x { align = 64 } }\n  compute")

    def test_on_the_cpu_it_asks_for_nothing(self) -> None:
        for offset in (0, 1, 4):
            np.testing.assert_array_equal(pl.compile(self.PROGRAM)(x=odd(matrix(3, 4), offset)).y, 2 * matrix(3, 4))

    def test_on_a_gpu_it_is_that_of_the_pointer(self) -> None:
        from pipelink_ir.runtime.bind import Binder
        compiled = pl.compile(self.PROGRAM)
        binder = Binder(compiled.contracts, compiled.pipeline, devices=frozenset(("cpu", "cuda:0")))
        assert binder.bind({"x": pl.from_raw_ptr(4096, (3, 4), "f32", device="cuda")}).addresses == [4096]
        assert binder.bind({"x": odd(matrix(3, 4), 4)}).addresses
        with pytest.raises(pl.ContractViolationError) as caught:
            binder.bind({"x": pl.from_raw_ptr(4096 + 16, (3, 4), "f32", device="cuda")})
        assert (caught.value.field, caught.value.operator, caught.value.expected, caught.value.got) == ("align", "twice", "64", "16")
        assert any(n.span.line == 2 for n in caught.value.locations)
        with pytest.raises(pl.ContractViolationError, match="takes arrays on cpu or cuda:0"):
            binder.bind({"x": pl.from_raw_ptr(4096, (3, 4), "f32", device="cuda:1")})
