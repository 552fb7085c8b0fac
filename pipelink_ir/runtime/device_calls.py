"""One run of an executable on a GPU: arrays of the caller to addresses, results to arrays where the inputs are.

Results are arrays of CuPy as soon as one input is on the device, which any library takes over without a copy (`torch.from_dlpack(out.y)`), and arrays of NumPy
otherwise. CuPy has no f8: such a result is a `TensorView`, which libraries take over in the same way.

Nothing waits on the host for a run whose arrays are all on the device, unless the program has checks at run time.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Operand
from pipelink_ir.runtime.device_bind import DeviceBound, torch_stream

if TYPE_CHECKING:
    from pipelink_ir.backends.cuda.executable import CudaExecutable
    from pipelink_ir.backends.cuda.executable import Pending as Run
    from pipelink_ir.backends.cuda.run import Given as Arrays
    from pipelink_ir.runtime.bind import Bound
    from pipelink_ir.runtime.inside import Inside
    from pipelink_ir.runtime.outputs import Given
    from pipelink_ir.runtime.results import Results
    from pipelink_ir.runtime.tensor import TensorView
    from pipelink_ir.runtime.values import Watched


class Pending:
    """A call that was handed to the device and not waited for.

    Results on the device may be used at once: what the caller puts on the stream of the call comes after them. Results in memory of the host, and the caller's
    own arrays of the host, belong to the run until `wait` returns."""

    def __init__(self, run: Run, finish: Callable[[Mapping[str, Any]], Results]) -> None:
        self._run, self._finish = run, finish
        self.event = run.event
        """The CUDA event that records the end of the run, as a number (`cudaEvent_t`). It is the run's until `wait` is called."""

    @property
    def results(self) -> Results:
        """The results, with no wait."""
        return self._finish(self._run.results)

    def done(self) -> bool:
        """Whether the device has come to the end of the run."""
        return self._run.done()

    def wait(self) -> Results:
        """Hold the calling thread until the run is done, and return its results. Raises `ExecutionError` for data that the program cannot be run on."""
        return self._finish(self._run.wait())


def run(executable: CudaExecutable, results: Sequence[Operand], bound: DeviceBound, given: Mapping[str, Given] | None = None,
        watched: Watched | None = None, inside: Inside | None = None) -> dict[str, Any]:
    """The results by name; see `calls.run`."""
    arrays = _arrays(executable, bound, _into(results, given) if given and watched is None else {}, inside)
    values = executable.run(arrays)
    if watched is not None:
        from pipelink_ir.runtime.values import check
        seen = {r.name: _on_host(executable, values[r.name], DTYPES[r.type.dtype]) for r in executable.pipeline.results}
        inputs = {name: _input_on_host(executable, bound, k) for k, name in enumerate(bound.names)}
        check(watched, {**inputs, **seen}, dict(zip(bound.names, bound.sources, strict=True)))
        values = {r.name: values[r.name] for r in results}
    return handed(executable, results, values, given, watched is None)


def start(executable: CudaExecutable, results: Sequence[Operand], bound: DeviceBound, given: Mapping[str, Given] | None,
          made: Callable[[dict[str, Any]], Results], inside: Inside | None = None) -> Pending:
    """The same without a wait."""
    if given and not all(g.direct and g.view.device != "cpu" for g in given.values()):
        raise UsageError("an asynchronous call writes results only to dense arrays on the device")
    pending = executable.start(_arrays(executable, bound, _into(results, given) if given else {}, inside))
    return Pending(pending, lambda values: made(handed(executable, results, values, given, True)))


class Again:
    """Calls with arrays of CuPy or PyTorch in the form of the last one: their addresses are read, and the graph is replayed. Whatever is different goes the
    long way, which finds out whether it may be."""

    __slots__ = ("_array", "_executable", "_index", "_items", "_make", "_name", "_names", "_patterns", "_replay", "_shapes", "_stream", "_torch")

    def __init__(self, executable: CudaExecutable, bound: DeviceBound, masks: Sequence[int], results: Sequence[Operand],
                 made: Callable[[dict[str, Any]], Results]) -> None:
        import sys
        self._executable, self._index, self._make, self._shapes = executable, executable.device, made, bound.shapes
        self._replay, self._stream = executable.replay, executable.driver.callers_stream
        from pipelink_ir.backends.cuda.driver import carrier
        self._array = sys.modules["cupy"].ndarray
        self._names = tuple(r.name for r in results)
        self._name = self._names[0] if len(results) == 1 else None
        dtypes = [DTYPES[r.type.dtype] for r in results]
        self._patterns = tuple(results) if any(carrier(d) != d.numpy() for d in dtypes) else ()
        """The results, if some are bit patterns, of which callers get views."""
        self._torch = any(type(x) is not self._array for x in bound.sources)
        """Whether some are PyTorch's."""
        self._items = tuple((n, x.shape, x.strides if type(x) is self._array else _torch_form(x), x.dtype, mask)
                            for n, x, mask in zip(bound.names, bound.sources, masks, strict=True))

    @classmethod
    def of(cls, executable: Any, bound: Bound, binder: Any, results: Sequence[Operand], made: Callable[[dict[str, Any]], Results]) -> Again | None:
        """None where the next call cannot go this way."""
        import sys
        cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
        if cupy is None or not isinstance(bound, DeviceBound) or bound.packed or bound.others or bound.foreign or bound.host or binder.look is not None:
            return None
        kinds = (cupy.ndarray, torch.Tensor) if torch is not None else (cupy.ndarray,)
        if bound.stream is None or any(type(x) not in kinds for x in bound.sources):
            return None
        return cls(executable, bound, binder.masks, results, made)

    def __call__(self, given: Mapping[str, Any]) -> Results | None:
        """The results, or None."""
        items = self._items
        if len(given) != len(items):
            return None
        index, kind = self._index, self._array
        stream = self._stream(index)
        if self._torch and torch_stream(index) != stream:
            return None
        addresses = []
        for name, shape, form, dtype, mask in items:
            x: Any = given.get(name)
            if type(x) is kind:
                if x.shape != shape or x.strides != form or (x.dtype is not dtype and x.dtype != dtype):
                    return None
                memory = x.data
                address = memory.ptr
                if address & mask or memory.device_id != index:
                    return None
            else:
                address = self._torch_address(x, shape, form, dtype)
                if not address or address & mask:
                    return None
            addresses.append(address)
        values = self._replay(self._shapes, addresses, stream)
        if values is None:
            return None
        if self._patterns:
            return self._make(handed(self._executable, self._patterns, dict(zip(self._names, values, strict=True)), None, True))
        only = self._name
        return self._make({only: values[0]} if only is not None else dict(zip(self._names, values, strict=True)))

    def _torch_address(self, x: Any, shape: Any, form: Any, dtype: Any) -> int:
        """Where a tensor begins, 0 if it is not in the form of the last one."""
        import sys
        torch = sys.modules.get("torch")
        if not self._torch or torch is None or type(x) is not torch.Tensor or x.dtype is not dtype or x.shape != shape:
            return 0
        if x.get_device() != self._index or x.requires_grad or x.is_neg() or _torch_form(x) != form:
            return 0
        return int(x.data_ptr())


def _torch_form(x: Any) -> tuple[Any, ...]:
    """A tensor's strides, and the bytes of its storage behind its first element: somebody may have shrunk it."""
    return x.stride(), x.untyped_storage().nbytes() - x.storage_offset() * x.element_size()


def _arrays(executable: CudaExecutable, bound: DeviceBound, into: Mapping[int, tuple[Any, int]], inside: Inside | None = None) -> Arrays:
    from pipelink_ir.backends.cuda.run import Given as Arrays
    addresses, held = bound.addresses, bound.foreign
    stream, others = bound.stream, bound.others
    if into and stream is None:
        stream = executable.driver.callers_stream(executable.device)
    if bound.packed:
        addresses, kept = _dense(executable, bound, stream)
        held = (*held, *kept)
    if inside is not None:
        held = (*held, inside.arena)
        if stream is None:
            # The memory is there in the order of the caller's stream.
            stream = executable.driver.callers_stream(executable.device)
    to_host = len(bound.host) + bound.resident == len(bound.names)
    return Arrays(bound.shapes, addresses, bound.host, stream, others, to_host, into, held, inside.address if inside is not None else 0)


def _dense(executable: CudaExecutable, bound: DeviceBound, stream: int | None) -> tuple[list[int], list[Any]]:
    """Addresses at which every input lies densely: copies on the host of what is there, on the device of what is on it."""
    import numpy as np
    addresses, kept = bound.addresses.copy(), list[Any]()
    for number in bound.packed:
        if number in bound.host:
            source = bound.array(number)
            copy = np.empty(source.shape, source.dtype)
            copy[...] = source
            address = int(copy.__array_interface__["data"][0])
        else:
            from pipelink_ir.runtime.device_bind import device_view
            view = device_view(bound.sources[number])
            assert stream is not None
            copy, address = executable.driver.packed(executable.device, view, view.address, view.shape, view.byte_strides, view.dtype, stream)
        kept.append(copy)
        addresses[number] = address
    return addresses, kept


def _into(results: Sequence[Operand], given: Mapping[str, Given] | None) -> dict[int, tuple[Any, int]]:
    """The arrays on the device that kernels write to themselves."""
    found = {n: given[r.name] for n, r in enumerate(results) if given and r.name in given}
    return {n: (g.target, g.view.address) for n, g in found.items() if g.direct and g.view.device != "cpu"}


def handed(executable: CudaExecutable, results: Sequence[Operand], values: Mapping[str, Any], given: Mapping[str, Given] | None,
           written: bool) -> dict[str, Any]:
    """The results as the caller gets them: in arrays of the caller's where `out` gave some."""
    out: dict[str, Any] = {}
    for r in results:
        g = given.get(r.name) if given else None
        if g is None:
            out[r.name] = _shown(values[r.name], DTYPES[r.type.dtype], executable)
            continue
        out[r.name] = g.target
        if g.view.device == "cpu":
            g.write(r, _on_host(executable, values[r.name], DTYPES[r.type.dtype]))
        elif not (g.direct and written):
            g.check_shape(r, tuple(values[r.name].shape))
            executable.driver.spread(executable.device, values[r.name], g.view, g.view.address, g.view.shape, g.view.byte_strides, g.view.dtype)
    return out


def _shown(value: Any, dtype: DType, executable: CudaExecutable) -> Any:
    """An array of the driver's; as a view where CuPy has not the dtype and the array is one of bit patterns."""
    return value if value.dtype == dtype.numpy() else view_of(value, dtype, executable.device)


def view_of(array: Any, dtype: DType, device: int) -> TensorView:
    """The memory of an array of the driver's, as elements of `dtype`."""
    from pipelink_ir.runtime.tensor import TensorView
    address = array.data.ptr if hasattr(array, "data") else array.address
    return TensorView(int(address), tuple(array.shape), dtype, device=f"cuda:{device}", owner=array)


def _on_host(executable: CudaExecutable, value: Any, dtype: DType) -> Any:
    import numpy as np
    return value if isinstance(value, np.ndarray) else executable.driver.to_host(value).view(dtype.numpy())


def _input_on_host(executable: CudaExecutable, bound: DeviceBound, number: int) -> Any:
    if number in bound.host:
        return bound.array(number)
    from pipelink_ir.runtime.device_bind import device_view
    view = device_view(bound.sources[number])
    assert bound.stream is not None
    copy, _ = executable.driver.packed(executable.device, view, view.address, view.shape, view.byte_strides, view.dtype, bound.stream)
    return executable.driver.to_host(copy).view(view.dtype.numpy())
