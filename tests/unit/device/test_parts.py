"""The parts of the driver that speak to CUDA's library itself, with a library that notes what it is told."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from pipelink_ir.backends.cuda import launcher
from pipelink_ir.backends.cuda.cupy_graph import CupyGraph, _Parameters
from pipelink_ir.backends.cuda.driver import CALL, COPY, FILL, FOREIGN, LAUNCH, RECORD, REPLAY, REPOINT, WAIT, Commands, DeviceError

_P, _I, _Q, _B = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int64, ctypes.c_uint8
_TYPES = {"cuCtxPushCurrent_v2": (_P,), "cuCtxPopCurrent_v2": (_P,), "cuLaunchKernel": (_P, *[_I] * 7, _P, _P, _P), "cuStreamWaitEvent": (_P, _P, _I),
          "cuEventRecord": (_P, _P), "cuMemcpyAsync": (_Q, _Q, _Q, _P), "cuMemsetD8Async": (_Q, _B, _Q, _P), "cuGraphLaunch": (_P, _P),
          "cuGraphExecKernelNodeSetParams_v2": (_P, _P, _P)}


class Table:
    """The functions of a driver, as native code calls them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, int] = {}
        self._functions = [self._function(name) for name in launcher.FUNCTIONS]
        self.words = (ctypes.c_void_p * len(self._functions))(*(ctypes.cast(f, ctypes.c_void_p).value for f in self._functions))

    def _function(self, name: str) -> Any:
        def call(*args: Any) -> int:
            self.calls.append((name, *args))
            return self.fail.get(name, 0)
        return ctypes.CFUNCTYPE(ctypes.c_int, *_TYPES[name])(call)

    def issue(self, commands: Commands, streams: Any) -> tuple[int, int, bool]:
        answer = launcher.issue_function()(commands.address, len(commands), ctypes.addressof(streams), ctypes.addressof(self.words), 999)
        return launcher.unpack(answer)


@pytest.fixture
def commands() -> tuple[Commands, Commands]:
    inner = Commands([(LAUNCH, 11, 1, 2, 3, 4, 5, 6, 7, 1, 77), (WAIT, 0, 5), (RECORD, 5, 1)])
    outer = Commands([(COPY, 1 << 40, 2, 3, 0), (FILL, 9, 255, 4, 1), (CALL, inner.address, len(inner)), (REPLAY, 8, 1), (REPOINT, 1, 2, 3)])
    return outer, inner


def test_every_command_reaches_its_function(commands: tuple[Commands, Commands]) -> None:
    table, streams = Table(), (ctypes.c_void_p * 2)(100, 200)
    assert table.issue(commands[0], streams) == (0, 0, False)
    assert table.calls[:-1] == [
        ("cuCtxPushCurrent_v2", 999), ("cuMemcpyAsync", 1 << 40, 2, 3, 100), ("cuMemsetD8Async", 9, 255, 4, 200),
        ("cuLaunchKernel", 11, 1, 2, 3, 4, 5, 6, 7, 200, 77, None), ("cuStreamWaitEvent", 100, 5, 0), ("cuEventRecord", 5, 200), ("cuGraphLaunch", 8, 200),
        ("cuGraphExecKernelNodeSetParams_v2", 1, 2, 3)]
    assert table.calls[-1][0] == "cuCtxPopCurrent_v2"


@pytest.mark.parametrize(("name", "code", "want"), [
    ("cuMemcpyAsync", 700, (700, 0, False)), ("cuStreamWaitEvent", 1, (1, 1, True)), ("cuLaunchKernel", 701, (701, 0, True)), ("cuGraphLaunch", 2, (2, 3, False)),
    ("cuCtxPushCurrent_v2", 201, (201, -1, False))])
def test_a_refusal_stops_and_is_told(commands: tuple[Commands, Commands], name: str, code: int, want: tuple[int, int, bool]) -> None:
    table, streams = Table(), (ctypes.c_void_p * 2)(100, 200)
    table.fail[name] = code
    assert table.issue(commands[0], streams) == want
    names = [c[0] for c in table.calls]
    assert names.count(name) == 1
    # What was current before is current again.
    assert (names[-1] == "cuCtxPopCurrent_v2") == (name != "cuCtxPushCurrent_v2")


def test_commands_grow() -> None:
    c = Commands(room=1)
    for n in range(100):
        c.add(WAIT, n, n + 1)
    assert [c[n][:3] for n in range(100)] == [[WAIT, n, n + 1] for n in range(100)]
    c.clear()
    assert len(c) == 0


class Library:
    """The functions that a graph is built with."""

    def __init__(self, fail_at: int = -1) -> None:
        self.nodes: list[tuple[int, list[int], dict[str, Any]]] = []
        self.destroyed: list[str] = []
        self.fail_at = fail_at

    def cuGraphCreate(self, graph: Any, flags: int) -> int:
        graph._obj.value = 0x10
        return 0

    def cuGraphAddKernelNode_v2(self, node: Any, graph: Any, before: Any, count: Any, parameters: Any) -> int:
        if len(self.nodes) == self.fail_at:
            return 1
        p = parameters._obj
        node._obj.value = 0x100 + len(self.nodes)
        words = (ctypes.c_void_p * 2).from_address(p.arguments)
        values = [ctypes.c_int64.from_address(w).value for w in words]
        self.nodes.append((graph.value, list(before[:count.value]), {"func": p.func, "grid": list(p.grid), "block": list(p.block), "shared": p.shared,
                                                                     "values": values, "kern": p.kern, "ctx": p.ctx, "extra": p.extra}))
        return 0

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: Any, flags: Any) -> int:
        executable._obj.value = 0x20
        return 0

    def cuGraphDestroy(self, graph: Any) -> int:
        self.destroyed.append("graph")
        return 0

    def cuGraphExecDestroy(self, executable: Any) -> int:
        self.destroyed.append("executable")
        return 0

    def cuGraphLaunch(self) -> None: ...

    def cuGraphExecKernelNodeSetParams_v2(self) -> None: ...


class Driver:
    def __init__(self, library: Any) -> None:
        self.library = library

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def giving_back(self, device: int, what: str) -> Iterator[None]:
        yield

    def check(self, code: int, what: str) -> None:
        if code:
            raise DeviceError(what, str(code))


def test_a_graph_node_by_node() -> None:
    words = (ctypes.c_int64 * 4)(1, 2, 3, 4)
    pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(words) + 8 * n for n in range(4)))
    at = ctypes.addressof(pointers)
    commands = Commands([(RECORD, 5, 0), (LAUNCH, 70, 1, 2, 3, 4, 5, 6, 7, 0, at), (WAIT, 1, 5), (LAUNCH, 71, 9, 1, 1, 32, 1, 1, 0, 1, at + 16),
                         (RECORD, 6, 1), (WAIT, 0, 6), (LAUNCH, 72, 1, 1, 1, 32, 1, 1, 0, 0, at)])
    library = Library()
    graph = CupyGraph(Driver(library), 0, commands, 2)  # type: ignore[arg-type]
    assert graph.executable == 0x20
    assert graph.nodes == {1: 0x100, 3: 0x101, 6: 0x102}
    assert [(n[0], n[1]) for n in library.nodes] == [(0x10, []), (0x10, []), (0x10, [0x100, 0x101])]
    assert library.nodes[0][2] == {"func": 70, "grid": [1, 2, 3], "block": [4, 5, 6], "shared": 7, "values": [1, 2], "kern": None, "ctx": None, "extra": None}
    assert library.nodes[1][2]["values"] == [3, 4]
    words[2] = 33  # the parameters of a node point to the arguments of the moment
    assert graph.retold(3)[:3] == (REPOINT, 0x20, 0x101)
    p = _Parameters.from_address(graph.retold(3)[3])
    assert (p.func, ctypes.c_int64.from_address((ctypes.c_void_p * 2).from_address(p.arguments)[0]).value) == (71, 33)
    graph.close()
    assert library.destroyed == ["executable", "graph"]


def test_a_graph_that_cannot_be_built_is_given_back() -> None:
    words = (ctypes.c_int64 * 2)()
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(words) for _ in range(2)))
    library = Library(fail_at=1)
    with pytest.raises(DeviceError, match="adding a kernel"):
        CupyGraph(Driver(library), 0, Commands([(LAUNCH, 70, *[1] * 6, 0, 0, ctypes.addressof(pointers))] * 2), 1)  # type: ignore[arg-type]
    assert library.destroyed == ["graph"]


def test_an_old_driver_has_no_graphs() -> None:
    class Old:
        def cuGraphCreate(self) -> None: ...

    with pytest.raises(DeviceError, match="this driver has no cuGraphAddKernelNode_v2"):
        CupyGraph(Driver(Old()), 0, Commands(), 1)  # type: ignore[arg-type]


def test_the_structure_is_that_of_cuda_h() -> None:
    """CUDA_KERNEL_NODE_PARAMS_v2 on a 64-bit machine."""
    assert ctypes.sizeof(_Parameters) == 72
    assert [getattr(_Parameters, n).offset for n in ("func", "grid", "block", "shared", "arguments", "extra", "kern", "ctx")] == [0, 8, 20, 32, 40, 48, 56, 64]


class Capturing(Library):
    """With what calls of libraries need besides. A recorded graph has the number of words that the call saw at the time."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[tuple[int, int]] = []
        self.seen: list[int] = []

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self.seen.clear()
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        graph._obj.value = 1000 + sum(self.seen)
        return 0

    def cuGraphAddChildGraphNode(self, node: Any, graph: Any, before: Any, count: Any, child: Any) -> int:
        node._obj.value = 0x200 + len(self.children)
        self.children.append((count.value, child.value))
        return 0

    def cuGraphExecChildGraphNodeSetParams(self, executable: Any, node: Any, child: Any) -> int:
        self.children.append((node.value, child.value))
        return 0


def test_a_call_of_a_library_is_a_graph_within_the_graph() -> None:
    library = Capturing()
    word = ctypes.c_int64(5)
    closed: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    def call(argument: int, stream: int) -> int:
        assert stream == 0x77
        library.seen.append(ctypes.c_int64.from_address(argument).value)
        return 0

    driver = Driver(library)
    driver.stream, driver.close_stream = lambda device: 0x77, lambda device, stream: closed.append(stream)  # type: ignore[attr-defined]
    function = ctypes.cast(call, ctypes.c_void_p).value or 0
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(word), ctypes.addressof(word))
    commands = Commands([(LAUNCH, 70, *[1] * 6, 0, 0, ctypes.addressof(pointers)), (FOREIGN, function, ctypes.addressof(word), 0)])
    graph = CupyGraph(driver, 0, commands, 1)  # type: ignore[arg-type]
    assert library.children == [(1, 1005)]
    word.value = 9
    kind, again, argument, stream = graph.retold(1)
    assert (kind, stream) == (FOREIGN, 0)
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(again)(argument, 0) == 0
    assert library.children[1:] == [(0x200, 1009)]
    graph.close()
    assert closed == [0x77]


def test_the_walk_calls_a_library() -> None:
    from pipelink_ir.backends.cuda import launcher
    seen: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    def call(argument: int, stream: int) -> int:
        seen.append((argument, stream))
        return 0 if argument == 11 else 0x1000F

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
    def context(_: int) -> int:
        return 0

    functions = [ctypes.cast(context, ctypes.c_void_p).value] * 2 + [0] * (len(launcher.FUNCTIONS) - 2)
    table, streams = (ctypes.c_void_p * len(functions))(*functions), (ctypes.c_void_p * 2)(0x70, 0x71)
    function = ctypes.cast(call, ctypes.c_void_p).value or 0
    commands = Commands([(FOREIGN, function, 11, 1), (FOREIGN, function, 12, 0)])
    answer = launcher.issue_function()(commands.address, len(commands), ctypes.addressof(streams), ctypes.addressof(table), 1)
    assert seen == [(11, 0x71), (12, 0x70)]
    assert launcher.unpack(answer) == (0x1000F, 1, False)
