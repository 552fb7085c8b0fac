"""The driver that CuPy gives: memory, streams, events and modules through its bindings, and the rest of CUDA's driver API beside them.

CuPy binds neither graphs node by node nor the contexts that make a device current without waking up another one; for those, and for the table of the
launcher, the driver's own library is asked. Both work in the primary context of a device, which PyTorch and JAX use too.
"""
from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelink_ir.backends.cuda import launcher
from pipelink_ir.backends.cuda.cublaslt import FAILED, status_name
from pipelink_ir.backends.cuda.cupy_graph import CupyGraph
from pipelink_ir.backends.cuda.driver import FATAL, LEGACY, Commands, DeviceError, DeviceFacts, Function, OutOfDeviceMemory, carrier, pick, quietly
from pipelink_ir.backends.cuda.nvrtc import INSTALL, ptx_for
from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DType

NOT_READY, OUT_OF_MEMORY = 600, 2
RELAXED = 2
"""The mode of a thread in which it may do anything while somebody captures a graph."""
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""Attributes of a device that CuPy has no name for."""

_Place = tuple[Any, int, tuple[int, ...]]
"""Who keeps memory alive, where it begins, and its strides in bytes."""


def _uncounted(thing: Any) -> Any:
    """Where Python does not count who holds what: equal to nothing, itself included."""
    return float("nan")


_COUNTED = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
_count: Callable[[Any], int] = sys.getrefcount if _COUNTED else _uncounted
_weak: Callable[[Any], int] = weakref.getweakrefcount if _COUNTED else _uncounted


class CupyDriver:
    """CUDA through CuPy. Making one looks for devices; a context is made when a device is first used."""

    def __init__(self) -> None:
        try:
            import cupy  # noqa: TID251
            from cupy_backends.cuda.api import driver, runtime
        except ImportError as error:
            raise UsageError(f"running on a GPU needs CuPy, which is not installed: {INSTALL}") from error
        self._cupy, self._runtime, self._api = cupy, runtime, driver
        self._count = self._look()
        self.library = _libcuda()
        self._table = self._functions()
        self._current, self._get_device, self._alloc, self._ndarray = cupy.cuda.get_current_stream, runtime.getDevice, cupy.cuda.alloc, cupy.ndarray
        self._issue, self._launch_graph = launcher.issue_function(), runtime.graphLaunch
        self._contexts: dict[int, int] = {}
        self._facts: dict[int, DeviceFacts] = {}
        self._pools: dict[int, bool] = {}
        self._streams: dict[int, Any] = {}
        self._lock = threading.Lock()

    def _look(self) -> int:
        """The number of devices, or why there is none."""
        runtime = self._runtime
        have, need = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if have == 0:
            raise UsageError("there is no NVIDIA driver on this machine (libcuda is missing): install it, run where a GPU is, or compile for the target 'cpu'")
        if have // 1000 < need // 1000:
            raise UsageError(f"the NVIDIA driver is too old: it knows CUDA {_version(have)}, and CuPy here is made for CUDA {_version(need)}: "
                             f"update the driver, or pip install 'pipelink-ir[cuda{have // 1000}]'")
        try:
            count = int(runtime.getDeviceCount())
        except runtime.CUDARuntimeError as error:
            count = 0
            if "NoDevice" not in str(error):
                raise UsageError(f"the NVIDIA driver cannot be used ({error}): see whether `nvidia-smi` works") from error
        if count == 0:
            visible = environment.visible_devices()
            why = f": CUDA_VISIBLE_DEVICES={visible!r} hides all there are" if visible is not None else ""
            raise UsageError(f"there is no GPU that CUDA can use{why}; `nvidia-smi` lists what there is. The target 'cpu' needs none")
        return count

    def _functions(self) -> Any:
        addresses = []
        for name in launcher.FUNCTIONS:
            function = getattr(self.library, name, None)
            addresses.append(ctypes.cast(function, ctypes.c_void_p).value if function is not None else 0)
        return (ctypes.c_void_p * len(addresses))(*addresses)

    # ------------------------------------------------------------------------------------------------------------------- devices

    def devices(self) -> int:
        return self._count

    def facts(self, device: int) -> DeviceFacts:
        if device not in self._facts:
            pick(device, self._count)
            r = self._runtime
            p = r.getDeviceProperties(device)
            name = p["name"].decode() if isinstance(p["name"], bytes) else str(p["name"])

            def ask(attribute: int) -> int:
                return int(r.deviceGetAttribute(attribute, device))

            self._facts[device] = DeviceFacts(device, name, 10 * ask(CAPABILITY_MAJOR) + ask(CAPABILITY_MINOR), ask(r.cudaDevAttrMultiProcessorCount),
                                              ask(r.cudaDevAttrMaxSharedMemoryPerBlockOptin), ask(r.cudaDevAttrMaxThreadsPerMultiProcessor),
                                              int(p["totalGlobalMem"]), ask(r.cudaDevAttrL2CacheSize))
        return self._facts[device]

    def context(self, device: int) -> int:
        """The primary context of a device, made at the first call."""
        found = self._contexts.get(device)
        if found is not None:
            return found
        with self._lock:
            if device not in self._contexts:
                pick(device, self._count)
                self.check(self.library.cuInit(0), "starting CUDA")
                number, context = ctypes.c_int(), ctypes.c_void_p()
                self.check(self.library.cuDeviceGet(ctypes.byref(number), device), f"finding the device 'cuda:{device}'")
                self.check(self.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), f"making a context on 'cuda:{device}'")
                self._contexts[device] = context.value or 0
        return self._contexts[device]

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        self.check(self.library.cuCtxPushCurrent_v2(ctypes.c_void_p(self.context(device))), f"turning to 'cuda:{device}'")
        try:
            yield
        finally:
            self.library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def check(self, code: int, what: str) -> None:
        """Raises what an error code of the driver means."""
        if code:
            raise self.error(code, what)

    def error(self, code: int, what: str, command: int = -1, inner: bool = False) -> DeviceError:
        """The exception of an error code."""
        if code & FAILED:
            return DeviceError("cuBLASLt", status_name(code & ~FAILED), False, command, inner)
        name = self.error_name(code)
        if code == OUT_OF_MEMORY:
            return OutOfDeviceMemory(0, "the device", name)
        return DeviceError(what, name, name in FATAL, command, inner)

    def error_name(self, code: int) -> str:
        """`CUDA_ERROR_ILLEGAL_ADDRESS`."""
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return text.value.decode() if text.value else f"error {code}"

    @contextmanager
    def _asking(self, device: int, what: str) -> Iterator[None]:
        """Calls through CuPy on a device; what they raise is a `DeviceError`."""
        with self.on(device):
            try:
                yield
            except (self._runtime.CUDARuntimeError, self._api.CUDADriverError) as error:
                raise self._translated(error, what) from error

    @contextmanager
    def giving_back(self, device: int, what: str) -> Iterator[None]:
        """Calls that give something back. They come when Python collects: also while this thread or another one captures a graph, for itself or in PyTorch or
        CuPy, and a call that may not be captured would end that. What is given back has no part in anybody's capture, so it may be relaxed about it."""
        exchange = getattr(self.library, "cuThreadExchangeStreamCaptureMode", None)
        mode = ctypes.c_int(RELAXED)
        with self._asking(device, what):
            if exchange is not None:
                exchange(ctypes.byref(mode))
            try:
                yield
            finally:
                if exchange is not None:
                    exchange(ctypes.byref(mode))  # what it was before

    def _translated(self, error: Exception, what: str) -> DeviceError:
        code = int(getattr(error, "status", 0))
        name = self.error_name(code)
        return DeviceError(what, str(error), name in FATAL)

    # --------------------------------------------------------------------------------------------------------- streams and events

    def stream(self, device: int) -> int:
        with self._asking(device, "making a stream"):
            return int(self._runtime.streamCreateWithFlags(self._runtime.streamNonBlocking))

    def close_stream(self, device: int, stream: int) -> None:
        with self.giving_back(device, "closing a stream"):
            self._runtime.streamDestroy(stream)

    def event(self, device: int) -> int:
        with self._asking(device, "making an event"):
            return int(self._runtime.eventCreateWithFlags(self._runtime.eventDisableTiming))

    def legacy_free(self, device: int) -> bool:
        with self.on(device):
            return not self.library.cuStreamIsCapturing(ctypes.c_void_p(LEGACY), ctypes.byref(ctypes.c_int()))

    def timer(self, device: int) -> int:
        with self._asking(device, "making an event"):
            return int(self._runtime.eventCreateWithFlags(0))

    def elapsed(self, device: int, begin: int, end: int) -> float:
        with self._asking(device, "asking for a time"):
            return 1e-3 * float(self._runtime.eventElapsedTime(begin, end))

    def close_event(self, device: int, event: int) -> None:
        with self.giving_back(device, "closing an event"):
            self._runtime.eventDestroy(event)

    def wait(self, device: int, event: int) -> None:
        with self.on(device):
            code = int(self.library.cuEventSynchronize(ctypes.c_void_p(event)))
        self.check(code, "running on the device")

    def done(self, device: int, event: int) -> bool:
        with self.on(device):
            code = int(self.library.cuEventQuery(ctypes.c_void_p(event)))
        if code != NOT_READY:
            self.check(code, "running on the device")
        return code == 0

    # -------------------------------------------------------------------------------------------------------------------- memory

    def _has_pool(self, device: int) -> bool:
        if device not in self._pools:
            self._pools[device] = bool(self._runtime.deviceGetAttribute(self._runtime.cudaDevAttrMemoryPoolsSupported, device))
        return self._pools[device]

    def allocate(self, device: int, size: int, stream: int) -> int:
        with self.on(device):
            for again in (True, False):
                try:
                    return int(self._runtime.mallocAsync(size, stream) if self._has_pool(device) else self._runtime.malloc(size))
                except self._runtime.CUDARuntimeError as error:
                    if int(error.status) != OUT_OF_MEMORY:
                        raise self._translated(error, f"taking {size} bytes of memory") from error
                    if not again:
                        raise OutOfDeviceMemory(size, f"'cuda:{device}'", str(error)) from error
                # CuPy keeps what was given back for later; so may PyTorch.
                self._cupy.get_default_memory_pool().free_all_blocks()
                if (torch := sys.modules.get("torch")) is not None:
                    quietly(torch.cuda.empty_cache)
        raise AssertionError

    def free(self, device: int, address: int, stream: int) -> None:
        with self.giving_back(device, "giving memory back"):
            if self._has_pool(device):
                self._runtime.freeAsync(address, stream)
            else:
                self._runtime.free(address)

    def pin(self, size: int) -> int:
        with self.on(0 if not self._contexts else next(iter(self._contexts))):
            try:
                return int(self._runtime.hostAlloc(size, self._runtime.hostAllocPortable))
            except self._runtime.CUDARuntimeError as error:
                raise OutOfDeviceMemory(size, "the host, pinned,", str(error)) from error

    def unpin(self, address: int) -> None:
        with self.giving_back(next(iter(self._contexts)), "giving pinned memory back"):
            self._runtime.freeHost(address)

    def free_bytes(self, device: int) -> tuple[int, int]:
        with self._asking(device, "asking for free memory"):
            free, total = self._runtime.memGetInfo()
            return int(free), int(total)

    # ------------------------------------------------------------------------------------------------------------------- kernels

    def load(self, device: int, image: bytes) -> int:
        with self._asking(device, "loading kernels"):
            # PTX is read up to its NUL.
            return int(self._api.moduleLoadData(ptx_for(image, self._runtime.driverGetVersion()) + b"\0"))

    def unload(self, device: int, module: int) -> None:
        with self.giving_back(device, "unloading kernels"):
            self._api.moduleUnload(module)

    def function(self, device: int, module: int, name: str) -> Function:
        api = self._api
        with self._asking(device, f"looking for the kernel '{name}'"):
            handle = int(api.moduleGetFunction(module, name))
            registers, shared, threads = (int(api.funcGetAttribute(a, handle)) for a in (
                api.CU_FUNC_ATTRIBUTE_NUM_REGS, api.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, api.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK))
        return Function(handle, name, registers, shared, threads)

    def allow_shared(self, device: int, function: Function, size: int) -> None:
        with self._asking(device, f"asking for {size} bytes of shared memory for the kernel '{function.name}'"):
            self._api.funcSetAttribute(function.handle, self._api.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size)

    def occupancy(self, device: int, function: Function, threads: int, shared: int) -> int:
        with self._asking(device, f"asking for the occupancy of the kernel '{function.name}'"):
            return int(self._api.occupancyMaxActiveBlocksPerMultiprocessor(function.handle, threads, shared))

    def best_block(self, device: int, function: Function, shared: int) -> int:
        with self._asking(device, f"asking for the occupancy of the kernel '{function.name}'"):
            _, threads = self._api.occupancyMaxPotentialBlockSize(function.handle, shared, 0)
            return int(threads)

    # ---------------------------------------------------------------------------------------------------------- commands, graphs

    def issue(self, device: int, commands: Commands, streams: int) -> None:
        context = self._contexts.get(device) or self.context(device)
        answer = self._issue(commands.address, commands.count, streams, self._table, context)
        if answer:
            code, command, inner = launcher.unpack(answer)
            raise self.error(code, "a command to the device", command, inner)

    def replay(self, device: int, graph: Any, stream: int) -> bool:
        if self._get_device() != device:
            return False
        try:
            self._launch_graph(graph.executable, stream)
        except self._runtime.CUDARuntimeError as error:
            raise self._translated(error, "replaying a graph") from error
        return True

    def holders(self, arrays: list[Any]) -> list[tuple[Any, ...]]:
        out = []
        for array in arrays:
            memory = array.data
            out.append((_count(array), _count(memory), _count(memory.mem), _weak(array), array.shape))
        return out

    def capture(self, device: int, commands: Commands, streams: int) -> CupyGraph:
        with self.on(device):
            return CupyGraph(self, device, commands, streams)

    # -------------------------------------------------------------------------------------------------------- arrays of the caller

    def array(self, device: int, shape: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        size = dtype.bytes
        for n in shape:
            size *= n
        return self.fresh(device, shape, carrier(dtype), size, stream)

    def fresh(self, device: int, shape: tuple[int, ...], kind: Any, size: int, stream: int) -> tuple[Any, int]:
        if self._get_device() == device and self._current(device).ptr == stream:
            try:
                # From CuPy's pool, which the array asks itself.
                array = self._ndarray(shape, kind)
                return array, array.data.ptr
            except (MemoryError, self._runtime.CUDARuntimeError) as error:
                raise self._no_room(size, device, error) from error
        with self.on(device), self._as_current(stream):
            return self._array(device, shape, kind, size)

    def _as_current(self, stream: int) -> Any:
        """A stream as CuPy's own, to be current for a while."""
        if stream == 0:
            return self._cupy.cuda.Stream.null
        if stream not in self._streams:
            self._streams[stream] = self._cupy.cuda.Stream.from_external(_Stream(stream))
        return self._streams[stream]

    def _array(self, device: int, shape: tuple[int, ...], kind: Any, size: int) -> tuple[Any, int]:
        try:
            memory = self._alloc(size)
            array = self._ndarray(shape, kind, memory)
        except (MemoryError, self._runtime.CUDARuntimeError) as error:
            raise self._no_room(size, device, error) from error
        return array, memory.ptr

    def _no_room(self, size: int, device: int, error: Exception) -> OutOfDeviceMemory:
        return OutOfDeviceMemory(size, f"'cuda:{device}'", " ".join(str(error).split()))

    def packed(self, device: int, source: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        with self.on(device), self._as_current(stream):
            dense, place = self.array(device, shape, dtype, stream)
            if place:
                self._move((dense, place, _dense(shape, dtype.bytes)), (source, address, strides), shape, dtype, device)
            return dense, place

    def spread(self, device: int, array: Any, target: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> None:
        if 0 not in shape:
            with self.on(device):
                self._move((target, address, strides), (array, int(array.data.ptr), _dense(shape, dtype.bytes)), shape, dtype, device)

    def _move(self, to: _Place, of: _Place, shape: tuple[int, ...], dtype: DType, device: int) -> None:
        """Elements from one place to another, as unsigned integers; byte by byte where they lie at odd addresses."""
        size = dtype.bytes
        crooked = any(address % size or any(s % size for s in strides) for _, address, strides in (to, of))
        target, source = (self._seen(*place, shape, size, crooked, device) for place in (to, of))
        target[...] = source

    def _seen(self, owner: Any, address: int, strides: tuple[int, ...], shape: tuple[int, ...], size: int, crooked: bool, device: int) -> Any:
        cuda = self._cupy.cuda
        low = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
        high = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0) + size
        memory = cuda.MemoryPointer(cuda.UnownedMemory(address + low, high - low, owner, device), -low)
        if crooked:
            return self._cupy.ndarray((*shape, size), "u1", memory, (*strides, 1))
        return self._cupy.ndarray(shape, f"u{size}", memory, strides)

    def to_device(self, device: int, array: Any) -> Any:
        from pipelink_ir.ir.dtypes import from_numpy
        dtype = from_numpy(array.dtype)
        if dtype is None:
            raise DeviceError(f"there are no elements of {array.dtype} on a device", "NO_ELEMENTS")
        out, _ = self.array(device, array.shape, dtype, self.callers_stream(device))
        with self.on(device):
            out.set(array.view(out.dtype))
            self._current().synchronize()
        return out

    def to_host(self, array: Any) -> Any:
        return self._cupy.asnumpy(array)

    def callers_stream(self, device: int) -> int:
        return int(self._current(device).ptr)


class _Stream:
    """A stream by the protocol that CuPy takes streams of others with."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _dense(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    out = []
    for n in reversed(shape):
        out.append(size)
        size *= max(n, 1)
    return tuple(reversed(out))


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _libcuda() -> Any:
    """The library of the driver."""
    names = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise UsageError(f"the library of the NVIDIA driver, {names[0]}, cannot be loaded: install the driver, or compile for the target 'cpu'")
