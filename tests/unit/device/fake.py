"""A driver without a device, for tests: it keeps the order that streams and events promise, and no other.

What is issued is put off until somebody waits, so that results which are looked at too early are not there. Every access of memory carries the clock of its
stream: two accesses to the same bytes, one of them writing, that no stream and no event orders, are a `Fault`, and so is memory that is used before it was
allocated or after it was given back, in the order of streams. Kernels are functions of the test, or run on the processor (`emulated`).
"""
from __future__ import annotations

import ctypes
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelink_ir.backends.cuda.capture import captured
from pipelink_ir.backends.cuda.driver import (
    CALL,
    COPY,
    FILL,
    FOREIGN,
    LAUNCH,
    RECORD,
    REPLAY,
    REPOINT,
    WAIT,
    Commands,
    DeviceError,
    DeviceFacts,
    Function,
    OutOfDeviceMemory,
    carrier,
)
from pipelink_ir.ir.dtypes import DType


class Fault(AssertionError):
    """The run time did what it may not."""


Clock = dict[int, int]


@dataclass(slots=True)
class Access:
    begin: int
    end: int
    write: bool
    stream: int
    time: int
    what: str


@dataclass(slots=True)
class Memory:
    """An allocation: what stands for it, and when in which stream it came and went."""

    address: int
    size: int
    owner: Any
    born: tuple[int, int]
    gone: tuple[int, int] | None = None


@dataclass(slots=True)
class Launch:
    """A kernel that is to run: name, grid, block, shared bytes, and the addresses of copies of its arguments, eight bytes each."""

    name: str
    module: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    words: list[int]
    slots: list[int] = field(default_factory=list)
    keep: Any = None


class Array:
    """An array of a caller on the device."""

    def __init__(self, driver: FakeDriver, address: int, shape: tuple[int, ...], dtype: Any, stream: int) -> None:
        self.driver, self.address, self.shape, self.dtype, self.stream = driver, address, shape, dtype, stream

    def __del__(self) -> None:
        if self.address in self.driver.memory and self.driver.memory[self.address].gone is None:
            self.driver.free(0, self.address, self.stream)


class FakeGraph:
    """A graph holds the arguments that its kernels had when it was made, or were given since."""

    def __init__(self, driver: FakeDriver, commands: Commands) -> None:
        self.driver = driver
        self.launches = captured(commands)
        self.held = {c.command: driver.called(list(c.words)) if c.foreign else driver.launch_of(list(c.words)) for c in self.launches}
        self.nodes = {c.command: 1000 * driver.handle() + c.command for c in self.launches}
        self.executable = driver.handle()
        self.closed = False
        self._struct = {c.command: ctypes.c_int64(c.command) for c in self.launches}
        driver.graphs[self.executable] = self

    def retold(self, command: int) -> tuple[int, ...]:
        return REPOINT, self.executable, self.nodes[command], ctypes.addressof(self._struct[command])

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        del self.driver.graphs[self.executable]


class FakeDriver:
    """One device, or several that are all alike."""

    def __init__(self, devices: int = 1, memory: int = 1 << 30, kernels: dict[str, Callable[[Launch], None]] | None = None,
                 accesses: Callable[[Launch], list[tuple[int, int, bool]]] | None = None) -> None:
        self.count, self.room = devices, memory
        self.kernels = kernels or {}
        self.accesses = accesses
        self.runner: Callable[[Launch], None] | None = None
        self.memory: dict[int, Memory] = {}
        self.pins: dict[int, Any] = {}
        self.clocks: dict[int, Clock] = {}
        self.host: Clock = {}
        self.events: dict[int, Clock | None] = {}
        self.functions: dict[int, tuple[str, int]] = {}
        self.images: dict[int, bytes] = {}
        self.graphs: dict[int, FakeGraph] = {}
        self.log: list[tuple[Any, ...]] = []
        self.pending: list[Callable[[], None]] = []
        self.past: list[Access] = []
        self.current: list[int] = []
        self.fail: dict[str, DeviceError] = {}
        self.waited: list[int] = []
        self.allocations = 0
        self.facts_shared = 227 << 10
        self.callers = 0
        self.somebody_captures = False
        """Whether somebody captures a stream that is ordered with the legacy default one."""
        self.arity: dict[str, int] = {}
        self.foreign: dict[int, Callable[[FakeDriver], Launch]] = {}
        """By the argument of a call of a library: the launch that it is at this moment."""
        self._next = 0x1000

    def handle(self) -> int:
        self._next += 16
        return self._next

    def failing(self, what: str) -> None:
        """Raises what a test wants a call to fail with, once."""
        error = self.fail.pop(what, None)
        if error is not None:
            raise error

    # ------------------------------------------------------------------------------------------------------------------- devices

    def devices(self) -> int:
        return self.count

    def facts(self, device: int) -> DeviceFacts:
        return DeviceFacts(device, "a fake", 90, 4, self.facts_shared, 2048, self.room)

    @contextmanager
    def on(self, device: int) -> Iterator[None]:
        self.current.append(device)
        try:
            yield
        finally:
            self.current.pop()

    # --------------------------------------------------------------------------------------------------------- streams and events

    def stream(self, device: int) -> int:
        return self.handle()

    def close_stream(self, device: int, stream: int) -> None:
        self.log.append(("close stream", stream))

    def event(self, device: int) -> int:
        event = self.handle()
        self.events[event] = None
        return event

    def legacy_free(self, device: int) -> bool:
        return not self.somebody_captures

    def timer(self, device: int) -> int:
        return self.event(device)

    def elapsed(self, device: int, begin: int, end: int) -> float:
        """A microsecond for each thing that happened on the streams between the two."""
        early, late = self.events[begin] or {}, self.events[end] or {}
        return 1e-6 * sum(t - early.get(s, 0) for s, t in late.items())

    def close_event(self, device: int, event: int) -> None:
        del self.events[event]

    def tick(self, stream: int) -> int:
        """The time of the next thing on a stream."""
        clock = self.clocks.setdefault(stream, {})
        for s, t in self.host.items():
            clock[s] = max(clock.get(s, 0), t)
        clock[stream] = clock.get(stream, 0) + 1
        return clock[stream]

    def record(self, event: int, stream: int) -> None:
        if event not in self.events:
            raise Fault("an event that is not there is recorded")
        self.tick(stream)
        self.events[event] = dict(self.clocks[stream])

    def wait_on(self, stream: int, event: int) -> None:
        if event not in self.events:
            raise Fault("an event that is not there is waited for")
        clock = self.clocks.setdefault(stream, {})
        for s, t in (self.events[event] or {}).items():
            clock[s] = max(clock.get(s, 0), t)

    def flush(self) -> None:
        """Everything that was issued happens."""
        pending, self.pending = self.pending, []
        for action in pending:
            action()

    def wait(self, device: int, event: int) -> None:
        self.waited.append(event)
        self.flush()
        self.failing("wait")
        self._seen(event)

    def done(self, device: int, event: int) -> bool:
        if not self.pending:
            self._seen(event)
        return not self.pending

    def _seen(self, event: int) -> None:
        """The host knows that an event has come: what it issues from now on comes after it."""
        for s, t in (self.events[event] or {}).items():
            self.host[s] = max(self.host.get(s, 0), t)

    # -------------------------------------------------------------------------------------------------------------------- memory

    def _new(self, size: int, stream: int) -> int:
        if sum(m.size for m in self.memory.values() if m.gone is None) + size > self.room:
            raise OutOfDeviceMemory(size, "'cuda:0'", "cudaErrorMemoryAllocation")
        block = (ctypes.c_ubyte * (size + 512))()
        ctypes.memset(block, 0xAB, size + 512)
        address = -(-ctypes.addressof(block) // 256) * 256
        self.memory[address] = Memory(address, size, block, (stream, self.tick(stream)))
        return address

    def allocate(self, device: int, size: int, stream: int) -> int:
        self.failing("allocate")
        self.allocations += 1
        return self._new(size, stream)

    def free(self, device: int, address: int, stream: int) -> None:
        memory = self.memory[address]
        if memory.gone is not None:
            raise Fault("memory is given back twice")
        self.touch(address, memory.size, True, stream, "free")
        memory.gone = stream, self.tick(stream)

    def pin(self, size: int) -> int:
        self.failing("pin")
        block = (ctypes.c_ubyte * size)()
        self.pins[ctypes.addressof(block)] = block
        return ctypes.addressof(block)

    def unpin(self, address: int) -> None:
        del self.pins[address]

    def free_bytes(self, device: int) -> tuple[int, int]:
        return self.room - self.live, self.room

    @property
    def live(self) -> int:
        """Bytes of the device in use."""
        return sum(m.size for m in self.memory.values() if m.gone is None)

    def owner(self, address: int, size: int) -> Memory | None:
        """The allocation that holds some bytes; None for memory of the host."""
        for m in self.memory.values():
            if m.address <= address and address + size <= m.address + max(m.size, 1):
                return m
        return None

    def touch(self, address: int, size: int, write: bool, stream: int, what: str) -> None:
        """An access on a stream; whatever is not ordered with it is a fault."""
        time = self.tick(stream)
        clock = self.clocks[stream]
        memory = self.owner(address, size)
        if memory is not None:
            if clock.get(memory.born[0], 0) < memory.born[1]:
                raise Fault(f"{what} uses memory before it is allocated, in the order of streams")
            if memory.gone is not None:
                raise Fault(f"{what} uses memory that was given back")
        for a in self.past:
            if a.begin < address + size and address < a.end and (write or a.write) and clock.get(a.stream, 0) < a.time:
                raise Fault(f"{what} on stream {stream:#x} and {a.what} on {a.stream:#x} touch the same memory, and nothing orders them")
        self.past = [a for a in self.past if not (write and address <= a.begin and a.end <= address + size)]
        self.past.append(Access(address, address + size, write, stream, time, what))

    # ------------------------------------------------------------------------------------------------------------------- kernels

    def load(self, device: int, image: bytes) -> int:
        self.failing("load")
        module = self.handle()
        self.images[module] = image
        return module

    def unload(self, device: int, module: int) -> None:
        self.log.append(("unload", module))

    def function(self, device: int, module: int, name: str) -> Function:
        handle = self.handle()
        self.functions[handle] = name, module
        return Function(handle, name, 32, 0, 1024)

    def allow_shared(self, device: int, function: Function, size: int) -> None:
        self.log.append(("allow shared", function.name, size))

    def occupancy(self, device: int, function: Function, threads: int, shared: int) -> int:
        return 2048 // threads

    def best_block(self, device: int, function: Function, shared: int) -> int:
        return 128

    def launch_of(self, words: list[int]) -> Launch:
        """A launch with copies of its arguments."""
        name, module = self.functions[words[0]]
        count = self.arity.get(name, 16)
        pointers = (ctypes.c_void_p * count).from_address(words[9]) if words[9] else []
        held = (ctypes.c_int64 * count)(*(ctypes.c_int64.from_address(p).value for p in pointers))
        slots = [ctypes.addressof(held) + 8 * n for n in range(count)]
        return Launch(name, module, tuple(words[1:4]), tuple(words[4:7]), words[7], list(held), slots, held)

    def called(self, words: list[int]) -> Launch:
        """A call of a library, with copies of what it is called with."""
        return self.foreign[words[1]](self)

    def run_kernel(self, launch: Launch, stream: int) -> None:
        self.log.append(("launch", launch.name, stream))
        for address, size, write in self.accesses(launch) if self.accesses else []:
            self.touch(address, size, write, stream, f"the kernel {launch.name}")
        if launch.name in self.kernels:
            kernel = self.kernels[launch.name]
            self.pending.append(lambda: kernel(launch))
        elif self.runner is not None:
            runner = self.runner
            self.pending.append(lambda: runner(launch))

    # ---------------------------------------------------------------------------------------------------------- commands, graphs

    def issue(self, device: int, commands: Commands, streams: int) -> None:
        self._walk(commands.address, commands.count, streams, False)

    def _walk(self, address: int, count: int, streams: int, inner: bool) -> None:
        for n in range(count):
            kind, *w = (ctypes.c_int64 * 12).from_address(address + 96 * n)

            def stream(place: int) -> int:
                return ctypes.c_int64.from_address(streams + 8 * place).value

            if kind in (LAUNCH, REPLAY) and "launch" in self.fail:
                error = self.fail.pop("launch")
                raise DeviceError(error.what, error.name, error.fatal, n, inner)
            if kind == LAUNCH:
                self.run_kernel(self.launch_of(w), stream(w[8]))
            elif kind == FOREIGN:
                self.run_kernel(self.called(w), stream(w[2]))
            elif kind == WAIT:
                self.wait_on(stream(w[0]), w[1])
            elif kind == RECORD:
                self.record(w[0], stream(w[1]))
            elif kind == COPY:
                self._copy(*w[:3], stream(w[3]))
            elif kind == FILL:
                target, byte, size = w[:3]
                self.touch(target, size, True, stream(w[3]), "a fill")
                self.pending.append(lambda target=target, byte=byte, size=size: ctypes.memset(target, byte, size))  # type: ignore[misc]
            elif kind == CALL:
                self._walk(w[0], w[1], streams, True)
            elif kind == REPLAY:
                self._replay(self.graphs[w[0]], stream(w[1]))
            elif kind == REPOINT:
                graph = self.graphs[w[0]]
                command = ctypes.c_int64.from_address(w[2]).value
                assert graph.nodes[command] == w[1]
                again = next(c for c in graph.launches if c.command == command)
                graph.held[command] = self.called(list(again.words)) if again.foreign else self.launch_of(list(again.words))
                self.log.append(("repoint", command))
            else:
                raise Fault(f"an unknown command {kind}")

    def _copy(self, target: int, source: int, size: int, stream: int) -> None:
        if not target or not source or size <= 0:
            raise Fault("a copy of nothing, or to nowhere")
        self.touch(source, size, False, stream, "a copy")
        self.touch(target, size, True, stream, "a copy")
        self.log.append(("copy", size, stream))
        if self.owner(source, size) is None and source not in self.pinned_range(source, size):
            # Pageable memory is read before the call returns.
            data = ctypes.string_at(source, size)
            self.pending.append(lambda: ctypes.memmove(target, data, size) and None)
        else:
            self.pending.append(lambda: ctypes.memmove(target, source, size) and None)

    def pinned_range(self, address: int, size: int) -> tuple[int, ...]:
        inside = any(p <= address and address + size <= p + ctypes.sizeof(b) for p, b in self.pins.items())
        return (address,) if inside else ()

    def _replay(self, graph: FakeGraph, stream: int) -> None:
        """Kernels that no edge of the graph orders are on streams of their own."""
        self.log.append(("replay", stream))
        begin, ends = dict(self.clocks.setdefault(stream, {})), dict[int, Clock]()
        for launch in graph.launches:
            own = self.handle()
            clock = self.clocks.setdefault(own, dict(begin))
            for before in launch.after:
                for s, t in ends[before].items():
                    clock[s] = max(clock.get(s, 0), t)
            self.run_kernel(graph.held[launch.command], own)
            ends[launch.command] = dict(self.clocks[own])
        clock = self.clocks[stream]
        for end in ends.values():
            for s, t in end.items():
                clock[s] = max(clock.get(s, 0), t)

    def replay(self, device: int, graph: Any, stream: int) -> bool:
        if "launch" in self.fail:
            raise self.fail.pop("launch")
        self._replay(graph, stream)
        return True

    def holders(self, arrays: list[Any]) -> list[tuple[Any, ...]]:
        return [(sys.getrefcount(array), weakref.getweakrefcount(array), array.shape) for array in arrays]

    def capture(self, device: int, commands: Commands, streams: int) -> FakeGraph:
        self.failing("capture")
        return FakeGraph(self, commands)

    # -------------------------------------------------------------------------------------------------------- arrays of the caller

    def array(self, device: int, shape: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        self.failing("array")
        size = dtype.bytes
        for n in shape:
            size *= n
        address = self._new(size, stream)
        return Array(self, address, shape, carrier(dtype), stream), address

    def fresh(self, device: int, shape: tuple[int, ...], kind: Any, size: int, stream: int) -> tuple[Any, int]:
        from pipelink_ir.ir.dtypes import from_numpy
        dtype = from_numpy(np.dtype(kind))
        assert dtype is not None
        array, address = self.array(device, shape, dtype, stream)
        assert self.memory[address].size == size
        return array, address

    def given(self, values: Any, stream: int) -> Array:
        """A test's array on the device, written on a stream."""
        from pipelink_ir.ir.dtypes import from_numpy
        values = np.array(values, order="C")
        dtype = from_numpy(values.dtype)
        assert dtype is not None
        array, address = self.array(0, values.shape, dtype, stream)
        self.touch(address, values.nbytes, True, stream, "the caller")
        ctypes.memmove(address, values.ctypes.data, values.nbytes)
        array.dtype = values.dtype
        return array

    def packed(self, device: int, source: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        raise NotImplementedError

    def to_device(self, device: int, array: Any) -> Array:
        return self.given(array, self.callers)

    def to_host(self, array: Any) -> Any:
        self.flush()
        return self.look(array)

    def look(self, array: Array) -> Any:
        """The values as they are at this moment, on the device."""
        data = ctypes.string_at(array.address, array.dtype.itemsize * int(np.prod(array.shape, dtype=np.int64)))
        return np.frombuffer(data, array.dtype).reshape(array.shape).copy()

    def callers_stream(self, device: int) -> int:
        return self.callers
