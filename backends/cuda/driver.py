"""The device interface: what the run time asks of a GPU, as a protocol.

Everything that touches a device goes through a `Driver`, so tests run the whole run time with one that only plays a device. Each call that a driver makes
is checked at once; what fails is a `DeviceError`, and after one that is not fatal the device can be used as before.

What is to be done on a device is written down as `Commands`, a table of words that native code walks (`launcher.py`): one call from Python issues a
whole run. Streams in it are places in a table that is given with the call, so that commands can be kept while the caller's stream changes.
"""
from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from pipelink_ir.ir import environment
from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DType

# --------------------------------------------------------------------------------------------------------------------------- faults


class DeviceError(Exception):
    """A call that the device or its driver refused. `name` is CUDA's name of the error; `fatal` that the process can no longer use the device; `command` the
    number of the command that failed, and whether it stood in the inner table (`inner`)."""

    def __init__(self, what: str, name: str = "", fatal: bool = False, command: int = -1, inner: bool = False) -> None:
        super().__init__(f"{what}: {name}" if name else what)
        self.what, self.name, self.fatal, self.command, self.inner = what, name, fatal, command, inner

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceError, (self.what, self.name, self.fatal, self.command, self.inner)


class OutOfDeviceMemory(DeviceError):
    """There is no memory of that size left on the device, or pinned on the host."""

    def __init__(self, size: int, where: str, name: str = "") -> None:
        super().__init__(f"{size} bytes of memory of {where} could not be had", name)
        self.size, self.where = size, where

    def __reduce__(self) -> tuple[Any, ...]:
        return OutOfDeviceMemory, (self.size, self.where, self.name)


FATAL = frozenset((
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT", "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_CONTEXT_IS_DESTROYED", "CUDA_ERROR_MPS_CLIENT_TERMINATED"))
"""Errors after which every call of the process fails."""


# ------------------------------------------------------------------------------------------------------------------------- commands

LAUNCH, WAIT, RECORD, COPY, FILL, CALL, REPLAY, REPOINT, FOREIGN = range(9)
"""Kinds of commands, and the words that follow the kind:

    LAUNCH   function, grid x y z, block x y z, bytes of shared memory, stream, address of the addresses of the arguments
    WAIT     stream, event: the stream goes on when what the event recorded is done
    RECORD   event, stream
    COPY     to, from, bytes, stream: between any two places of device and pinned memory; from pageable memory the data are taken at once
    FILL     address, byte, bytes, stream
    CALL     address of other commands, their number
    REPLAY   executable graph, stream
    REPOINT  executable graph, node, address of the node's new parameters
    FOREIGN  function, argument, stream: `int function(argument, stream)` of native code, which puts work of a library on the stream
"""

WORDS = 12
"""Words of one command."""

LEGACY = 0
"""The legacy default stream. It never goes away and no other stream ever has its number, so what stands on it is in order, and can be recorded later."""


class Commands:
    """A table of commands in memory that native code reads. `address` and `count` are what it is called with."""

    __slots__ = ("_room", "_words", "address", "count")

    def __init__(self, commands: Sequence[Sequence[int]] = (), room: int = 8) -> None:
        self._reserve(max(room, len(commands)))
        self.count = 0
        for c in commands:
            self.add(*c)

    def _reserve(self, room: int) -> None:
        self._room = room
        self._words = (ctypes.c_int64 * (WORDS * room))()
        self.address = ctypes.addressof(self._words)

    def add(self, *command: int) -> None:
        """One more command."""
        if self.count == self._room:
            old = self._words
            self._reserve(2 * self._room)
            ctypes.memmove(self._words, old, ctypes.sizeof(old))
        at = WORDS * self.count
        self._words[at:at + len(command)] = list(command)
        self.count += 1

    def clear(self) -> None:
        """Begin anew."""
        self.count = 0

    def __getitem__(self, n: int) -> list[int]:
        return list(self._words[WORDS * n:WORDS * (n + 1)])

    def set(self, n: int, word: int, value: int) -> None:
        """Change one word of a command."""
        self._words[WORDS * n + word] = value

    def __len__(self) -> int:
        return self.count


# -------------------------------------------------------------------------------------------------------------------- the protocol


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What is known of a device."""

    index: int
    name: str
    sm: int
    """Compute capability, 90 for 9.0."""
    processors: int
    shared_block: int
    """Bytes of shared memory that a block may have when it asks for it."""
    threads_processor: int
    memory: int
    l2: int = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel that is loaded: its handle, and what it takes."""

    handle: int
    name: str
    registers: int
    shared: int
    """Bytes of shared memory that the kernel declares itself."""
    threads: int
    """Most threads of a block with which it can be launched."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch as it will be. A block's share of scratch is in shared memory, unless `block_bytes` says how much of it lies in memory. `checks`: it may
    record a failure."""

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    block_bytes: int = 0
    thread_bytes: int = 0
    checks: bool = True

    @property
    def scratch(self) -> int:
        """Bytes of scratch: those of blocks, then those of threads."""
        blocks, threads = self.grid[0], self.block[0]
        return blocks * (self.block_bytes + threads * self.thread_bytes)


class Graph(Protocol):
    """Commands captured once: launches of kernels, calls of libraries, and what orders them. `executable` is what `REPLAY` names, `nodes` are their nodes by
    the number of their command."""

    executable: int
    nodes: dict[int, int]

    def retold(self, command: int) -> tuple[int, ...]:
        """The command that gives a node its present arguments."""
        ...

    def close(self) -> None:
        """Give it back. A replay that is under way comes to its end first."""
        ...


def carrier(dtype: DType) -> Any:
    """NumPy's dtype of arrays of `Driver.array`: CuPy has no elements of f8, whose arrays are of bit patterns."""
    import numpy as np
    return np.dtype(np.uint8) if dtype.is_float and dtype.bits == 8 else dtype.numpy()


class Driver(Protocol):
    """Devices, as the run time sees them. Handles are numbers; addresses of device memory are addresses."""

    def devices(self) -> int:
        """How many devices there are."""
        ...

    def facts(self, device: int) -> DeviceFacts: ...

    def on(self, device: int) -> AbstractContextManager[None]:
        """Inside, `device` is the current device of this thread; afterwards, and after an exception, what was current before."""
        ...

    def stream(self, device: int) -> int:
        """A new stream that waits for no other."""
        ...

    def close_stream(self, device: int, stream: int) -> None: ...

    def event(self, device: int) -> int:
        """A new event. To wait for one that was never recorded is to wait for nothing."""
        ...

    def close_event(self, device: int, event: int) -> None: ...

    def legacy_free(self, device: int) -> bool:
        """Whether work may be put on the legacy default stream at the moment. Not while somebody captures a stream that is ordered with it: that would end
        the capture."""
        ...

    def timer(self, device: int) -> int:
        """A new event that notes when it was recorded."""
        ...

    def elapsed(self, device: int, begin: int, end: int) -> float:
        """Seconds between two recorded timers, the later one of which has been waited for."""
        ...

    def wait(self, device: int, event: int) -> None:
        """Hold the calling thread until what the event recorded last is done."""
        ...

    def done(self, device: int, event: int) -> bool:
        """Whether that is done."""
        ...

    def allocate(self, device: int, size: int, stream: int) -> int:
        """Memory from the pool of the device, to be used on `stream` and on what waits for it."""
        ...

    def free(self, device: int, address: int, stream: int) -> None:
        """Give memory back when `stream` has come so far."""
        ...

    def pin(self, size: int) -> int:
        """Memory of the host that a device can copy from and to while the host goes on."""
        ...

    def unpin(self, address: int) -> None: ...

    def free_bytes(self, device: int) -> tuple[int, int]:
        """Bytes that are free, and all there are."""
        ...

    def load(self, device: int, image: bytes) -> int:
        """A module from a cubin, or from PTX."""
        ...

    def unload(self, device: int, module: int) -> None: ...

    def function(self, device: int, module: int, name: str) -> Function: ...

    def allow_shared(self, device: int, function: Function, size: int) -> None:
        """Let a kernel be launched with so much shared memory, beyond what every kernel may have."""
        ...

    def occupancy(self, device: int, function: Function, threads: int, shared: int) -> int:
        """How many blocks a processor runs at once."""
        ...

    def best_block(self, device: int, function: Function, shared: int) -> int:
        """The threads of a block with which a processor is busiest."""
        ...

    def issue(self, device: int, commands: Commands, streams: int) -> None:
        """Hand commands to the device, in order. `streams` is the address of the handles that commands name by place."""
        ...

    def capture(self, device: int, commands: Commands, streams: int) -> Graph:
        """The commands as a graph: launches, ordered as their streams and events say. `streams` is the number of streams. The graph owns a copy of all that
        the commands point to."""
        ...

    def replay(self, device: int, graph: Graph, stream: int) -> bool:
        """Launch an executable graph and nothing else, if the device is the thread's current one; False where it is not, and nothing was done."""
        ...

    def holders(self, arrays: list[Any]) -> list[tuple[Any, ...]]:
        """Of arrays of `array`: how many hold each, and in whatever way its memory, and its shape. Equal counts mean that nobody has come to it; without
        counts they are never equal."""
        ...

    def array(self, device: int, shape: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        """An array of the caller's on the device, its elements as `carrier` says, and its address. Its memory is that of
        `stream`: given back and taken again in the order of that."""
        ...

    def fresh(self, device: int, shape: tuple[int, ...], kind: Any, size: int, stream: int) -> tuple[Any, int]:
        """`array` for NumPy's dtype (`carrier`), with the bytes worked out: what every call needs."""
        ...

    def packed(self, device: int, source: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, stream: int) -> tuple[Any, int]:
        """A dense copy of elements at `strides` (bytes), made on `stream`."""
        ...

    def spread(self, device: int, array: Any, target: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> None:
        """The elements of an array of `array` to places at `strides` (bytes), on the caller's stream. `target` keeps the memory alive."""
        ...

    def to_device(self, device: int, array: Any) -> Any:
        """An array of `array` with the elements of a dense NumPy array, there when this returns."""
        ...

    def to_host(self, array: Any) -> Any:
        """The NumPy array of an array of `array`, waited for."""
        ...

    def callers_stream(self, device: int) -> int:
        """The stream on which the caller works at the moment with the arrays that this driver makes."""
        ...


# -------------------------------------------------------------------------------------------------------------- processes that fork

_opened_in = 0
"""The process that has opened a driver, 0 for none."""

FORKED = ("this process was forked from one that had used CUDA, and CUDA does not work in it: start workers with the method 'spawn' or 'forkserver', "
          "fork before anything runs on a GPU, or compile for the target 'cpu'")


def opened(there: bool) -> None:
    """Notes that this process uses a device, or no longer does."""
    global _opened_in
    _opened_in = os.getpid() if there else 0


def usable() -> bool:
    """Whether the driver in use, if any, is this process's own. Whatever gives something back asks first: a forked child owns nothing on a device."""
    return _opened_in in (0, os.getpid())


def was_forked() -> bool:
    """Whether this process is the child of one that had used CUDA."""
    return _opened_in not in (0, os.getpid())


def pick(asked: int, there: int) -> int:
    """The index of the device that is asked for, if it is there."""
    if asked < there:
        return asked
    visible = environment.visible_devices()
    why = f" (CUDA_VISIBLE_DEVICES={visible} hides others)" if visible is not None else ""
    have = f"the only device is 'cuda:0'{why}" if there == 1 else f"there are 'cuda:0' to 'cuda:{there - 1}'{why}"
    raise UsageError(f"there is no device 'cuda:{asked}': {have}")


def quietly(action: Callable[[], None]) -> None:
    """Give something back. At the end of a process, or on a device that has failed, there is nobody to tell that it could not be done."""
    if not usable():
        return
    try:
        action()
    except Exception:
        return
