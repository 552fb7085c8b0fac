"""A CUDA graph, built node by node through the driver's library."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from pipelink_ir.backends.cuda.capture import captured
from pipelink_ir.backends.cuda.driver import FOREIGN, REPOINT, Commands, DeviceError

if TYPE_CHECKING:
    from pipelink_ir.backends.cuda.cupy_driver import CupyDriver

NEEDS = ("cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuGraphDestroy",
         "cuGraphExecDestroy")
"""Functions of the driver, all there since CUDA 12.0."""

_FOREIGN_NEEDS = ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphAddChildGraphNode", "cuGraphExecChildGraphNodeSetParams")
"""What is needed for calls of libraries besides."""

_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED: what happens elsewhere in the process does not disturb the capture, and is not disturbed by it."""

_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)


class _Parameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("arguments", ctypes.c_void_p),
                ("extra", ctypes.c_void_p), ("kern", ctypes.c_void_p), ("ctx", ctypes.c_void_p)]


class CupyGraph:
    """See `driver.Graph`. The nodes' parameters point to the arguments of the commands, so `REPOINT` takes the arguments of the moment. What a library puts on
    a stream is recorded from one of its own, and is a graph within the graph; it is recorded again where its arguments have changed."""

    def __init__(self, driver: CupyDriver, device: int, commands: Commands, streams: int) -> None:
        self._driver, self._device = driver, device
        library = driver.library
        launches = captured(commands)
        missing = [name for name in (*NEEDS, *(_FOREIGN_NEEDS if any(c.foreign for c in launches) else ())) if not hasattr(library, name)]
        if missing:
            raise DeviceError("building a graph", f"this driver has no {missing[0]}")
        self._commands = commands
        self._parameters = (_Parameters * max(1, len(launches)))()
        self._number = {c.command: n for n, c in enumerate(launches)}
        self.nodes: dict[int, int] = {}
        self._foreign = {c.command: c.words for c in launches if c.foreign}
        self._stream = driver.stream(device) if self._foreign else 0
        self._again: dict[int, Any] = {}
        graph = ctypes.c_void_p()
        driver.check(library.cuGraphCreate(ctypes.byref(graph), 0), "making a graph")
        try:
            for n, launch in enumerate(launches):
                before = (ctypes.c_void_p * max(1, len(launch.after)))(*(self.nodes[c] for c in launch.after))
                node = ctypes.c_void_p()
                if launch.foreign:
                    self._add_foreign(graph, node, before, len(launch.after), launch.words)
                    self.nodes[launch.command] = node.value or 0
                    continue
                p = self._parameters[n]
                function, *sizes = launch.words[:8]
                p.func, p.shared, p.arguments = function, sizes[6], launch.words[9]
                p.grid[:], p.block[:] = sizes[:3], sizes[3:6]
                driver.check(library.cuGraphAddKernelNode_v2(ctypes.byref(node), graph, before, ctypes.c_size_t(len(launch.after)), ctypes.byref(p)),
                             "adding a kernel to a graph")
                self.nodes[launch.command] = node.value or 0
            executable = ctypes.c_void_p()
            driver.check(library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)), "making a graph executable")
        except BaseException:
            library.cuGraphDestroy(graph)
            self._close_stream()
            raise
        self._graph, self.executable = graph, executable.value or 0

    def _recorded(self, words: tuple[int, ...]) -> tuple[int, ctypes.c_void_p]:
        """(error code, graph) of what a library puts on a stream for its present arguments."""
        library, stream, graph = self._driver.library, ctypes.c_void_p(self._stream), ctypes.c_void_p()
        code = int(library.cuStreamBeginCapture_v2(stream, _RELAXED))
        if code:
            return code, graph
        answer = int(_CALL(words[0])(words[1], self._stream))
        code = int(library.cuStreamEndCapture(stream, ctypes.byref(graph)))
        return answer or code, graph

    def _add_foreign(self, graph: ctypes.c_void_p, node: ctypes.c_void_p, before: Any, count: int, words: tuple[int, ...]) -> None:
        driver, library = self._driver, self._driver.library
        code, child = self._recorded(words)
        try:
            driver.check(code, "recording the call of a library")
            driver.check(library.cuGraphAddChildGraphNode(ctypes.byref(node), graph, before, ctypes.c_size_t(count), child),
                         "adding the call of a library to a graph")
        finally:
            if child.value:
                library.cuGraphDestroy(child)

    def retold(self, command: int) -> tuple[int, ...]:
        if command not in self._foreign:
            return REPOINT, self.executable, self.nodes[command], ctypes.addressof(self._parameters[self._number[command]])
        if command not in self._again:
            self._again[command] = _CALL(lambda _argument, _stream: self._record_again(command))
        return FOREIGN, ctypes.cast(self._again[command], ctypes.c_void_p).value or 0, 0, 0

    def _record_again(self, command: int) -> int:
        """Gives the node of a library's call its present arguments; an error code."""
        library = self._driver.library
        code, child = self._recorded(self._foreign[command])
        if not code:
            code = int(library.cuGraphExecChildGraphNodeSetParams(ctypes.c_void_p(self.executable), ctypes.c_void_p(self.nodes[command]), child))
        if child.value:
            library.cuGraphDestroy(child)
        return code

    def _close_stream(self) -> None:
        if self._stream:
            stream, self._stream = self._stream, 0
            self._driver.close_stream(self._device, stream)

    def close(self) -> None:
        self._close_stream()
        with self._driver.giving_back(self._device, "giving a graph back"):
            self._driver.library.cuGraphExecDestroy(ctypes.c_void_p(self.executable))
            self._driver.library.cuGraphDestroy(self._graph)
