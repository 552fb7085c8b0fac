"""Arrays bound to a pipeline that runs on a GPU: those on its device are used in place, those of the host are staged.

Beside what `bind.py` finds out it is known of each array on which stream it was made: CuPy's and PyTorch's current one, the one that the array interface names,
or, for what comes through DLPack, ours, for which its producer has waited. The run goes on the stream of the caller and waits for the others.
"""
from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.dtypes import DType, from_numpy
from pipelink_ir.ir.nodes import Module, Pipeline
from pipelink_ir.runtime import dlpack
from pipelink_ir.runtime.bind import Binder, Bound
from pipelink_ir.runtime.matching import Decision, Matching, stop
from pipelink_ir.runtime.readers import Unreadable, is_torch, read_torch
from pipelink_ir.runtime.tensor import TensorView

if TYPE_CHECKING:
    from collections.abc import Callable

    from pipelink_ir.backends.cuda.driver import Driver

CUDA_MEMORY = (dlpack.CUDA, dlpack.CUDA_MANAGED)


class DeviceBound(Bound):
    """Arrays that fit, of which those numbered `host` are in memory of the host. `stream` is where the run goes, None if nothing is on the device; `others`
    are further streams on which arrays were made or results will be used. `foreign` is what has to be kept until the run is done. `resident` is how many are on
    the device because parameters were bound."""

    __slots__ = ("foreign", "host", "others", "resident", "stream")

    def __init__(self, bound: Bound, host: tuple[int, ...], stream: int | None, others: tuple[int, ...], foreign: tuple[Any, ...]) -> None:
        self.names, self.sources, self.addresses, self.shapes, self.sizes = bound.names, bound.sources, bound.addresses, bound.shapes, bound.sizes
        self.packed, self.entries = bound.packed, bound.entries
        self.host, self.stream, self.others, self.foreign = host, stream, others, foreign
        self.resident = 0

    def view(self, number: int) -> TensorView:
        return super().view(number) if number in self.host else device_view(self.sources[number])


@dataclass(slots=True)
class DeviceMatching(Matching):
    """One call being checked, for a pipeline on `cuda:<index>`. `streams` are those on which arrays were made, `foreign` what comes from elsewhere."""

    driver: Driver | None = None
    index: int = 0
    streams: dict[int, None] = field(default_factory=dict)
    foreign: list[Any] = field(default_factory=list)

    def _read(self, array: Any) -> TensorView:
        view = read_device(array, self.driver, self.index, self.streams)
        if view is None:
            return super(DeviceMatching, self)._read(array)
        if view.mirrors is None:
            self.foreign.append(view)
        return view

    def _why_packed(self) -> str:
        return "kernels read dense memory"


class DeviceBinder(Binder):
    """Binds arrays to one pipeline on one device."""

    def __init__(self, contracts: Module, pipeline: Pipeline, copies: str, look: Callable[[Pipeline, Matching], None] | None, driver: Driver,
                 index: int, resident: frozenset[str] = frozenset()) -> None:
        super().__init__(contracts, pipeline, copies, look, frozenset(("cpu", f"cuda:{index}")))
        self.driver, self.index, self.resident = driver, index, len(resident)
        asked = [self.demands[n].align for n in self.names]
        self._masks = tuple(int(a.word) - 1 if a is not None else 0 for a in asked)
        self.masks = tuple(m | slot[3] for m, slot in zip(self._masks, self._slots, strict=True))
        """Bits that an address on the device may not have."""
        self._decisions: dict[Any, Decision] = {}

    def bind(self, given: Mapping[str, Any], origins: Mapping[str, str] | None = None, copies: str | None = None) -> DeviceBound:
        copies = copies or self.copies
        if self.look is None:
            bound = self._quick(given, copies)
            if bound is not None:
                return bound
        return self._slow(given, origins or {}, copies)

    def _quick(self, given: Mapping[str, Any], copies: str) -> DeviceBound | None:
        """Arrays of NumPy, CuPy and PyTorch in a form that was seen before; None for anything else."""
        if len(given) != len(self._slots):
            return None
        cupy, tensor = _class("cupy", "ndarray"), _class("torch", "Tensor")
        sources, addresses, shapes, host = [], [], [], []
        key: list[Any] = [copies]
        from_cupy = from_torch = False
        try:
            for number, (name, dtype, numpy_dtype, mask) in enumerate(self._slots):
                x = given[name]
                kind = type(x)
                if kind is cupy:
                    memory = x.data
                    if x.dtype != numpy_dtype or memory.device_id != self.index:
                        return None
                    address, steps, from_cupy = memory.ptr, x.strides, True
                    if address & self._masks[number]:
                        return None
                elif kind is self._array:
                    if x.dtype != numpy_dtype:
                        return None
                    address, steps = self._address(x), x.strides
                    host.append(number)
                elif kind is tensor:
                    if self._torch.get(x.dtype) is not dtype or x.requires_grad or x.is_neg():
                        return None
                    address, steps = x.data_ptr(), x.stride()
                    if x.is_cuda:
                        if x.get_device() != self.index or address & self._masks[number]:
                            return None
                        from_torch = True
                    else:
                        host.append(number)
                    key.append(x.untyped_storage().nbytes() - x.storage_offset() * (mask + 1))
                else:
                    return None
                if address & mask:
                    return None
                key.append(kind)
                key.append(steps)
                shapes.append(x.shape)
                sources.append(x)
                addresses.append(address)
        except (KeyError, RuntimeError):  # a name that is missing; a torch tensor without memory
            return None
        shapes_key = tuple(shapes)
        decision = self._decisions.get((shapes_key, tuple(key), tuple(host)))
        if decision is None:
            return None
        return self._placed(Bound(self.names, tuple(sources), addresses, decision, decision.packed, decision.entries), tuple(host), from_cupy, from_torch)

    def _placed(self, bound: Bound, host: tuple[int, ...], from_cupy: bool, from_torch: bool, streams: Mapping[int, None] = MappingProxyType({}),
                foreign: tuple[Any, ...] = ()) -> DeviceBound:
        if len(host) == len(bound.names):
            return DeviceBound(bound, host, None, (), foreign)
        current = self.driver.callers_stream(self.index)
        main = torch_stream(self.index) if from_torch else current
        # Results are arrays of CuPy: what CuPy's current stream does next comes after them.
        others = dict.fromkeys((*streams, current)) if from_torch else dict(streams)
        out = DeviceBound(bound, host, main, tuple(s for s in others if s != main), foreign)
        out.resident = self.resident
        return out

    def _slow(self, given: Mapping[str, Any], origins: Mapping[str, str], copies: str) -> DeviceBound:
        matching = DeviceMatching(self.pipeline, self.demands, given, origins, copies, self.devices, self.edges, driver=self.driver, index=self.index)
        try:
            decision = matching.run()
        finally:
            if self.look is not None:
                self.look(self.pipeline, matching)
        stop(matching.report)
        views = [matching.views[name] for name in self.names]
        host = tuple(n for n, v in enumerate(views) if v.device == "cpu")
        cupy = _class("cupy", "ndarray")
        known = tuple(given[n] if type(given[n]) in (self._array, cupy) or is_torch(given[n]) else None for n in self.names)
        sources = tuple(v if k is None else k for k, v in zip(known, views, strict=True))
        addresses = [v.address for v in views]
        crooked = [n for n, (a, slot) in enumerate(zip(addresses, self._slots, strict=True)) if a & slot[3]]
        if all(k is not None for k in known) and not crooked and not any(n not in host and views[n].address & self._masks[n] for n in range(len(views))):
            self._remember(known, decision, copies, host, views)
        packed, entries = self._crooked(addresses, decision) if crooked else (decision.packed, decision.entries)
        bound = Bound(self.names, sources, addresses, decision, packed, entries)
        on_device = [_origin(given[n]) for k, n in enumerate(self.names) if k not in host]
        from_torch = any(is_torch(x) for x in on_device)
        return self._placed(bound, host, any(type(x) is cupy for x in on_device), from_torch, matching.streams, tuple(matching.foreign))

    def _remember(self, arrays: tuple[Any, ...], decision: Decision, copies: str, host: tuple[int, ...], views: list[TensorView]) -> None:
        """The decision under the key that `_quick` will look it up by."""
        key: list[Any] = [copies]
        for x, view, slot in zip(arrays, views, self._slots, strict=True):
            if is_torch(x):
                if type(x) is not _class("torch", "Tensor"):
                    return
                self._torch[x.dtype] = view.dtype
                key.append(x.untyped_storage().nbytes() - x.storage_offset() * (slot[3] + 1))
            key += [type(x), x.stride() if is_torch(x) else x.strides]
        for old in list(self._decisions)[:max(0, len(self._decisions) - 255)]:
            self._decisions.pop(old, None)
        self._decisions[decision.shapes, tuple(key), host] = decision


# ------------------------------------------------------------------------------------------------------------------------ reading


def device_view(source: Any) -> TensorView:
    """The view of a source of a `DeviceBound` that is on the device."""
    if isinstance(source, TensorView):
        return source
    return read_torch(source) if is_torch(source) else _cupy_view(source)


def read_device(array: Any, driver: Any, index: int, streams: dict[int, None]) -> TensorView | None:
    """The view of an array in memory of a GPU, and among `streams` the one on which it was made; None for what is in memory of the host.

    A view that has no array behind it (`mirrors`) keeps memory of somebody else's alive."""
    source = _origin(array)
    cupy = _class("cupy", "ndarray")
    if cupy is not None and isinstance(source, cupy):
        streams[driver.callers_stream(index)] = None
        return None if isinstance(array, TensorView) else _cupy_view(source)
    if is_torch(source):
        if source.is_cuda:
            streams[torch_stream(source.get_device())] = None
        return None
    if isinstance(array, TensorView):
        if array.device != "cpu":
            streams[driver.callers_stream(index)] = None
        return None
    if _is_cuda(source):
        current = driver.callers_stream(index)
        streams[current] = None
        return _dlpack_view(source, current)
    interface = getattr(source, "__cuda_array_interface__", None)
    if interface is not None:
        return _interface_view(source, interface, index, streams)
    return None


def _origin(array: Any) -> Any:
    """What a view was made of."""
    return array.mirrors if isinstance(array, TensorView) and array.mirrors is not None else array


def _class(module: str, name: str) -> Any:
    found = sys.modules.get(module)
    return getattr(found, name, None) if found is not None else None


def _is_cuda(array: Any) -> bool:
    device = getattr(array, "__dlpack_device__", None)
    if device is None or not hasattr(array, "__dlpack__"):
        return False
    return int(device()[0]) in CUDA_MEMORY


def torch_stream(index: int) -> int:
    """PyTorch's current stream on a device."""
    torch = sys.modules["torch"]
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return int(raw(index)) if raw is not None else int(torch.cuda.current_stream(index).cuda_stream)


def _cupy_view(array: Any) -> TensorView:
    dtype = from_numpy(array.dtype)
    if dtype is None:
        said = f"{array.dtype}{list(array.shape)}"
        raise Unreadable("dtype", f"the array is {said}, whose elements PLIR does not have", "convert it with '.astype(…)'", said)
    return TensorView(int(array.data.ptr), array.shape, dtype, array.strides, f"cuda:{array.data.device_id}", owner=array, mirrors=array)


class _On:
    """An array that hands itself over to a stream."""

    def __init__(self, array: Any, stream: int) -> None:
        # DLPack has no 0 for CUDA: 1 is the legacy default stream.
        self.array, self.stream = array, stream or 1

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(stream=self.stream, **options)


def _dlpack_view(array: Any, stream: int) -> TensorView:
    try:
        taken = dlpack.take(_On(array, stream))
    except dlpack.DLPackError as fault:
        raise Unreadable("dtype", f"a {type(array).__name__} cannot be taken: {fault}", "convert it first", str(fault)) from None
    size = taken.dtype.bytes
    return TensorView(taken.address, taken.shape, taken.dtype, tuple(s * size for s in taken.strides), dlpack.device_name(taken.device), owner=taken,
                      readonly=taken.readonly is not False)


def _interface_view(array: Any, interface: Mapping[str, Any], index: int, streams: dict[int, None]) -> TensorView:
    """CUDA array interface, version 3: `stream` None asks for no wait, 0 is not allowed."""
    import numpy as np
    shape = tuple(interface["shape"])
    dtype = from_numpy(np.dtype(interface["typestr"]))
    if dtype is None:
        raise Unreadable("dtype", f"the array has elements of type {interface['typestr']}, which PLIR does not have", "convert it first", interface["typestr"])
    if interface.get("mask") is not None:
        raise Unreadable("input", "the array is masked, and what is masked would be read as if it were not", "give the mask as an array of its own",
                         "a masked array")
    stream = interface.get("stream")
    if stream == 0:
        raise Unreadable("input", "the array says that it was made on stream 0, which the CUDA array interface does not allow",
                         "let it name 1 (the legacy default stream), 2 (that of the thread) or a stream of its own", "stream 0")
    if stream is not None:
        streams[int(stream)] = None
    address, readonly = interface["data"]
    steps = interface.get("strides") or dense_steps(shape, dtype)
    return TensorView(int(address), shape, dtype, tuple(steps), f"cuda:{index}", owner=array, readonly=bool(readonly))


def dense_steps(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    return tuple(dtype.bytes * prod(shape[k + 1:]) for k in range(len(shape)))
