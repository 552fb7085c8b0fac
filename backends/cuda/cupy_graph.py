"""A CUDA graph, built node by node through the driver's library."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from pipelink_ir.backends.cuda.capture import captured
from pipelink_ir.backends.cuda.driver import Commands, DeviceError

if TYPE_CHECKING:
    from pipelink_ir.backends.cuda.cupy_driver import CupyDriver

NEEDS = ("cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags", "cuGraphExecKernelNodeSetParams_v2", "cuGraphLaunch", "cuGraphDestroy",
         "cuGraphExecDestroy")
"""Functions of the driver, all there since CUDA 12.0."""


class _Parameters(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [("func", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint), ("arguments", ctypes.c_void_p),
                ("extra", ctypes.c_void_p), ("kern", ctypes.c_void_p), ("ctx", ctypes.c_void_p)]


class CupyGraph:
    """See `driver.Graph`. The nodes' parameters point to the arguments of the commands, so `REPOINT` takes the arguments of the moment."""

    def __init__(self, driver: CupyDriver, device: int, commands: Commands, streams: int) -> None:
        self._driver, self._device = driver, device
        library = driver.library
        missing = [name for name in NEEDS if not hasattr(library, name)]
        if missing:
            raise DeviceError("building a graph", f"this driver has no {missing[0]}")
        launches = captured(commands)
        self._commands = commands
        self._parameters = (_Parameters * max(1, len(launches)))()
        self._number = {c.command: n for n, c in enumerate(launches)}
        self.nodes: dict[int, int] = {}
        graph = ctypes.c_void_p()
        driver.check(library.cuGraphCreate(ctypes.byref(graph), 0), "making a graph")
        try:
            for n, launch in enumerate(launches):
                p = self._parameters[n]
                function, *sizes = launch.words[:8]
                p.func, p.shared, p.arguments = function, sizes[6], launch.words[9]
                p.grid[:], p.block[:] = sizes[:3], sizes[3:6]
                before = (ctypes.c_void_p * max(1, len(launch.after)))(*(self.nodes[c] for c in launch.after))
                node = ctypes.c_void_p()
                driver.check(library.cuGraphAddKernelNode_v2(ctypes.byref(node), graph, before, ctypes.c_size_t(len(launch.after)), ctypes.byref(p)),
                             "adding a kernel to a graph")
                self.nodes[launch.command] = node.value or 0
            executable = ctypes.c_void_p()
            driver.check(library.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)), "making a graph executable")
        except BaseException:
            library.cuGraphDestroy(graph)
            raise
        self._graph, self.executable = graph, executable.value or 0

    def parameters(self, command: int) -> int:
        return ctypes.addressof(self._parameters[self._number[command]])

    def close(self) -> None:
        with self._driver.giving_back(self._device, "giving a graph back"):
            self._driver.library.cuGraphExecDestroy(ctypes.c_void_p(self.executable))
            self._driver.library.cuGraphDestroy(self._graph)
