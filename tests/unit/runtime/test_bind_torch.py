"""Torch tensors on the CPU at the call, and the loader that wraps a permuted one. Run where torch is installed (`pip install torch`); CI does without its gigabyte."""
from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.unit.runtime.programs import ADD, TWICE, twice

torch: Any = pytest.importorskip("torch")


def matrix(rows: int, columns: int, dtype: Any = None) -> Any:
    return torch.arange(rows * columns).to(dtype or torch.float32).reshape(rows, columns)


ACCEPTED: dict[str, Callable[[], Any]] = {
    "dense": lambda: matrix(3, 4),
    "rows in the middle": lambda: matrix(5, 4)[1:4],
    "transposed": lambda: matrix(4, 3).t(),
    "permuted twice": lambda: matrix(3, 4).permute(1, 0).permute(1, 0),
    "columns cut off": lambda: matrix(2, 5)[:, :4],
    "every second column": lambda: matrix(3, 8)[:, ::2],
    "every second row": lambda: matrix(6, 4)[::2],
    "flipped": lambda: matrix(3, 4).flip(0),
    "one row expanded": lambda: matrix(1, 4).expand(3, 4),
    "one value expanded": lambda: torch.tensor(7.0).expand(3, 4),
    "unfolded windows": lambda: torch.arange(6.0).unfold(0, 4, 1),
    "a diagonal of blocks": lambda: torch.arange(48.0).reshape(4, 3, 4).diagonal(dim1=0, dim2=2),
    "as_strided backwards in memory": lambda: torch.arange(12.0).as_strided((3, 4), (1, 3)),
    "channels last of one channel": lambda: matrix(3, 4).reshape(1, 1, 3, 4).to(memory_format=torch.channels_last)[0, 0],
    "at an offset of one element": lambda: torch.arange(13.0)[1:].reshape(3, 4),
    "one row": lambda: matrix(1, 5),
    "one column of many": lambda: matrix(5, 6)[:, 2:3],
    "one element": lambda: matrix(1, 1),
    "no rows": lambda: torch.zeros(0, 4),
    "no columns": lambda: torch.zeros(3, 0),
    "the real part": lambda: torch.view_as_real(torch.tensor([[1 + 2j, 3 + 4j]]))[..., 0],
    "the imaginary part": lambda: torch.tensor([[1 + 2j, 3 + 4j]]).imag,
    "bits seen as floats": lambda: matrix(3, 4).view(torch.int32).view(torch.float32),
    "over NumPy's memory": lambda: torch.from_numpy(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "over NumPy's strided memory": lambda: torch.from_numpy(np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2]),
    "detached": lambda: torch.ones(3, 4, requires_grad=True).detach(),
    "under inference mode": lambda: _inference(),
    "resolved": lambda: torch.tensor([[1 + 2j, 3 + 4j]]).conj().imag.resolve_neg(),
    "shared": lambda: matrix(3, 4).share_memory_(),
    "a storage that is larger": lambda: _larger(),
    "a TensorView": lambda: pl.from_torch(matrix(3, 4)),
    "a TensorView of a permutation": lambda: pl.from_torch(matrix(4, 3).t()),
    "a pointer": lambda: _raw(matrix(3, 4)),
}


def _inference() -> Any:
    with torch.inference_mode():
        return matrix(3, 4)


def _larger() -> Any:
    t = matrix(3, 4)
    t.untyped_storage().resize_(4096)
    return t


def _raw(t: Any) -> pl.TensorView:
    return pl.from_raw_ptr(t.data_ptr(), tuple(t.shape), t.dtype, strides=t.stride(), owner=t)


@pytest.fixture(scope="module")
def double() -> pl.Compiled:
    return pl.compile(TWICE)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_tensors_are_read_right(double: pl.Compiled, name: str) -> None:
    tensor = ACCEPTED[name]()
    before = (torch.from_dlpack(tensor) if isinstance(tensor, pl.TensorView) else tensor).clone().numpy()
    for _ in range(3):
        np.testing.assert_array_equal(double(x=tensor).y, 2 * before, strict=True)
    np.testing.assert_array_equal((torch.from_dlpack(tensor) if isinstance(tensor, pl.TensorView) else tensor).numpy(), before)
    np.testing.assert_array_equal(double(x=ACCEPTED[name]()).y, 2 * before, strict=True)


def _resized(size: int) -> Any:
    t = matrix(3, 4)
    t.untyped_storage().resize_(size)
    return t


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "f64": (lambda: matrix(3, 4, torch.float64), "dtype", ".to(torch.float32)"),
    "f16": (lambda: matrix(3, 4, torch.float16), "dtype", "f16[3, 4]"),
    "bf16": (lambda: matrix(3, 4, torch.bfloat16), "dtype", "bf16[3, 4]"),
    "i64": (lambda: matrix(3, 4, torch.int64), "dtype", "i64[3, 4]"),
    "complex": (lambda: matrix(3, 4, torch.complex64), "dtype", "complex64[3, 4]"),
    "one axis": (lambda: torch.zeros(4), "rank", "has 1"),
    "a storage of 0 bytes": (lambda: _resized(0), "shape", "resized to 0"),
    "a storage that is too small": (lambda: _resized(40), "shape", "needs 48 bytes, but its storage was resized to 40"),
    "sparse": (lambda: matrix(3, 4).to_sparse(), "contiguity", ".to_dense()"),
    "sparse in rows": (lambda: matrix(3, 4).to_sparse_csr(), "contiguity", ".to_dense()"),
    "on the device meta": (lambda: torch.zeros(3, 4, device="meta"), "device", "no values"),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_tensors_are_named(double: pl.Compiled, name: str) -> None:
    make, field, said = REFUSED[name]
    tensor = make()
    for copies in ("refuse", "allow"):
        with pytest.raises(pl.ContractViolationError) as caught:
            double(x=tensor, copies=copies)
        assert (caught.value.field, caught.value.edge) == (field, "x")
        assert said in str(caught.value)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: torch.ones(3, 4, requires_grad=True), ".detach()"), (lambda: torch.nn.Parameter(torch.ones(3, 4)), ".detach()"),
    (lambda: torch.tensor([[1 + 2j, 3 + 4j]]).conj().imag, "resolve_neg"),
])
def test_tensors_that_would_be_misread(double: pl.Compiled, make: Callable[[], Any], said: str) -> None:
    with pytest.raises(pl.ExecutionError, match=said):
        double(x=make())
    with pytest.raises(ValueError, match=said):
        pl.from_torch(make())


@pytest.mark.parametrize(("dtype", "name"), [
    (torch.bool, "bool"), (torch.uint8, "u8"), (torch.int8, "i8"), (torch.int16, "i16"), (torch.int32, "i32"), (torch.int64, "i64"), (torch.float16, "f16"),
    (torch.bfloat16, "bf16"), (torch.float32, "f32"), (torch.float64, "f64"), (torch.float8_e4m3fn, "f8e4m3"), (torch.float8_e5m2, "f8e5m2"),
    (torch.uint16, "u16"),
])
def test_every_dtype_goes_both_ways(dtype: Any, name: str) -> None:
    t = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype).t()
    view = pl.from_torch(t)
    assert (str(view.dtype), view.strides, view.shape) == (name, (1, 3), (3, 2))
    back = torch.from_dlpack(view)
    assert (back.dtype, back.stride(), back.data_ptr()) == (dtype, (1, 3), t.data_ptr())
    assert torch.equal(back.to(torch.float64), t.to(torch.float64))
    np.testing.assert_array_equal(np.asarray(view).astype(float), t.to(torch.float64).numpy())


def test_results_go_to_torch() -> None:
    y = torch.from_dlpack(pl.compile(TWICE)(x=matrix(3, 4)).y)
    assert torch.equal(y, 2 * matrix(3, 4))


class TestKnownForms:
    """What was decided for a tensor is not decided for another."""

    def test_tensors_that_change_between_calls(self, double: pl.Compiled) -> None:
        t = matrix(3, 4)
        for _ in range(3):
            double(x=t)
        t.t_()
        np.testing.assert_array_equal(double(x=t).y, 2 * matrix(3, 4).t().numpy())
        t.resize_(2, 2)
        t.fill_(3)
        np.testing.assert_array_equal(double(x=t).y, np.full((2, 2), 6, np.float32))
        t.set_(torch.full((5, 2), 4.0))
        np.testing.assert_array_equal(double(x=t).y, np.full((5, 2), 8, np.float32))
        for _ in range(3):
            double(x=t)
        t.requires_grad_()
        with pytest.raises(pl.ExecutionError, match="gradient"):
            double(x=t)

    @pytest.mark.parametrize("calls", [1, 2, 3])
    def test_a_storage_that_is_taken_away(self, double: pl.Compiled, calls: int) -> None:
        t = matrix(3, 4)
        view = pl.from_torch(t)
        for _ in range(calls):
            double(x=t)
        double(x=view)
        t.untyped_storage().resize_(0)
        for given in (t, view):
            with pytest.raises(pl.ContractViolationError, match="resized to 0"):
                double(x=given)
        other = torch.zeros(3, 4)
        other.untyped_storage().resize_(20)
        with pytest.raises(pl.ContractViolationError, match="resized to 20"):
            double(x=other)

    def test_numpy_and_torch_of_one_form_do_not_mix(self, double: pl.Compiled) -> None:
        # The strides (16, 4) are bytes in NumPy and elements in torch.
        double(x=np.arange(12, dtype=np.float32).reshape(3, 4))
        t = torch.arange(48.0).as_strided((3, 4), (16, 4))
        np.testing.assert_array_equal(double(x=t).y, 2 * t.numpy())

    def test_mixed_arguments(self) -> None:
        add = pl.compile(ADD)
        a, b = torch.arange(5.0), np.ones(5, np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(add(a=a, b=b).y, a.numpy() + 1)
            np.testing.assert_array_equal(add(a=b, b=a).y, a.numpy() + 1)
            np.testing.assert_array_equal(add(a=a, b=pl.from_torch(a)).y, 2 * a.numpy())

    def test_tensors_are_not_kept_alive(self, double: pl.Compiled) -> None:
        import weakref
        t = matrix(3, 4)
        gone = weakref.ref(t)
        for _ in range(3):
            double(x=t)
        del t
        gc.collect()
        assert gone() is None


class TestOut:
    """Results into tensors."""

    @pytest.mark.parametrize("make", [lambda: torch.empty(3, 4), lambda: torch.empty(4, 3).t(), lambda: torch.zeros(3, 8)[:, ::2]])
    def test_tensors_that_take_results(self, double: pl.Compiled, make: Callable[[], Any]) -> None:
        target = make()
        for given in (target, pl.from_torch(target)):
            out = double(x=matrix(3, 4), out=given)
            assert out.y is given
            assert torch.equal(target, 2 * matrix(3, 4))
            target.zero_()

    @pytest.mark.parametrize(("make", "field"), [
        (lambda: torch.empty(1, 4).expand(3, 4), "contiguity"), (lambda: torch.empty(3, 4, dtype=torch.float64), "dtype"), (lambda: torch.empty(4, 3), "shape"),
        (lambda: torch.empty(3, 4, device="meta"), "device"), (lambda: torch.arange(6.0).unfold(0, 4, 1), "contiguity"),
    ])
    def test_tensors_that_do_not(self, double: pl.Compiled, make: Callable[[], Any], field: str) -> None:
        with pytest.raises(pl.ContractViolationError) as caught:
            double(x=matrix(3, 4), out=make())
        assert caught.value.field == field

    def test_a_parameter_takes_no_result(self, double: pl.Compiled) -> None:
        with pytest.raises(pl.ExecutionError, match="gradient"):
            double(x=matrix(3, 4), out=torch.nn.Parameter(torch.zeros(3, 4)))

    def test_a_view_of_the_input(self, double: pl.Compiled) -> None:
        base = torch.zeros(4, 4)
        with pytest.raises(pl.ContractViolationError, match="overlaps the one for the input '%x'"):
            double(x=base[:3], out=base[1:])


PLANAR = """\
/// The mean of each channel.
op @channel_means(%image: tensor<NxCxHxWxf32, NCHW>) -> (%y: tensor<NxCxf32>) {
  memory { %image { contiguity = dense } }
  compute { %y[n, c] = mean[h < H, w < W](%image[n, c, h, w]) }
}

pipeline @main(%frames: tensor<NxCxHxWxf32, NCHW>) -> (%y: tensor<NxCxf32>) {
  %y = @channel_means(%frames)
}
"""


class Loader:
    """Loads interleaved frames and hands them out as if they were planar."""

    def __init__(self) -> None:
        self.frames = torch.arange(2 * 4 * 5 * 3.0).reshape(2, 4, 5, 3)

    def load(self) -> pl.TensorView:
        return pl.from_torch(self.frames.permute(0, 3, 1, 2))  # here

    @property
    def line(self) -> int:
        return self.load.__func__.__code__.co_firstlineno + 1


class TestTheLoader:
    """A loader wraps an NHWC-permuted tensor for an operator that wants dense NCHW: the error names the loader, not the call far away."""

    def test_it_is_stopped_and_the_loader_is_named(self) -> None:
        compiled, loader = pl.compile(PLANAR), Loader()
        ran: list[int] = []
        compiled._executable = _Never(compiled.executable, ran)
        with pytest.raises(pl.ContractViolationError) as caught:
            compiled(frames=loader.load())
        error = caught.value
        assert not ran
        assert (error.field, error.operator, error.edge, error.expected) == ("contiguity", "channel_means", "frames", "dense")
        assert "its memory, from the outermost, is NHWC" in str(error)
        assert [(n.span.source.path, n.span.line) for n in error.locations] == [("<text>", 7), ("<text>", 3), (__file__, loader.line)]
        assert "return pl.from_torch(self.frames.permute(0, 3, 1, 2))  # here" in str(error)
        assert ".contiguous()" in (error.diagnostics[0].help or "")

    def test_a_bare_tensor_names_the_call(self) -> None:
        compiled, loader = pl.compile(PLANAR), Loader()
        with pytest.raises(pl.ContractViolationError) as caught:
            compiled(frames=loader.frames.permute(0, 3, 1, 2))  # the call
        last = caught.value.locations[-1]
        assert last.span.source.path == __file__
        assert "# the call" in (last.span.source.line(last.span.line) or "")

    def test_a_layout_that_is_said_is_compared_by_name(self) -> None:
        with pytest.raises(pl.ContractViolationError) as caught:
            pl.compile(PLANAR)(frames=pl.from_torch(Loader().frames, layout="NHWC"))
        assert (caught.value.field, caught.value.expected, caught.value.got) == ("layout", "NCHW", "NHWC")

    def test_the_repair_that_is_proposed_works(self) -> None:
        compiled, loader = pl.compile(PLANAR), Loader()
        expected = loader.frames.numpy().mean((1, 2))
        np.testing.assert_allclose(compiled(frames=loader.frames.permute(0, 3, 1, 2).contiguous()).y, expected, rtol=1e-6)
        np.testing.assert_allclose(compiled(frames=loader.load(), copies="allow").y, expected, rtol=1e-6)


class _Never:
    """An executable that notes when it is run."""

    def __init__(self, of: Any, ran: list[int]) -> None:
        self.of, self.ran = of, ran

    def run_dense(self, *arguments: Any) -> Any:
        self.ran.append(1)
        return self.of.run_dense(*arguments)


def test_rows_are_kept_apart_by_their_pitch() -> None:
    padded = torch.full((4, 16), -1.0)
    padded[:, :5] = torch.arange(20.0).reshape(4, 5)
    np.testing.assert_array_equal(pl.compile(twice(contiguity="rows"))(x=padded[:, :5]).y, 2 * np.arange(20, dtype=np.float32).reshape(4, 5))


def test_enough_kinds_of_tensors_are_tried() -> None:
    assert len(ACCEPTED) + len(REFUSED) >= 40
