"""One run: arrays of the host staged, commands put together and issued, results handed over.

A run whose arrays are on the device goes on the stream of the caller: its kernels come after what the caller did on that stream, and what the caller does there
next comes after them, so nobody waits on the host. A run for arrays of the host goes on the lane's own stream and is waited for. Kernels that check what they
read leave a status, which is copied with the results and looked at before those are handed over; such a run is waited for too.
"""
from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.driver import CALL, COPY, FILL, RECORD, REPLAY, WAIT
from pipelink_ir.backends.cuda.lanes import Instance, Lane
from pipelink_ir.backends.cuda.pinned import Block, PinnedPool
from pipelink_ir.backends.cuda.recipe import ALIGN, STATUS_BYTES, Recipe
from pipelink_ir.ir.dtypes import DType

CHUNK = 4 << 20
"""Bytes of an input that are copied to pinned memory before the device begins to fetch them."""


@dataclass(slots=True)
class Given:
    """The arrays of a call, dense and aligned, in the order of the signature; the caller keeps them alive until the call returns.

    `host` are the numbers of those in memory of the host. `stream` is where the run goes (None: on a stream of its own); `others` are further streams on which
    arrays were made, and on which their memory may be used again. `into` gives places on the device for results. `held` is kept until the run is done. `arena`
    is where an arena of the caller's begins, 0 for that of the lane."""

    shapes: tuple[tuple[int, ...], ...]
    addresses: list[int]
    host: tuple[int, ...] = ()
    stream: int | None = None
    others: tuple[int, ...] = ()
    to_host: bool = True
    into: Mapping[int, tuple[Any, int]] = field(default_factory=lambda: MappingProxyType({}))
    held: tuple[Any, ...] = ()
    arena: int = 0


class Run:
    """A run in a lane. After `issue` the lane may be used for another; `results` hold values when it has been waited for, or in the order of its stream."""

    __slots__ = ("_going", "blocks", "given", "instance", "lane", "main", "pool", "recipe", "results", "status")

    def __init__(self, lane: Lane, recipe: Recipe, given: Given, pool: PinnedPool) -> None:
        self.lane, self.recipe, self.given, self.pool = lane, recipe, given, pool
        self.main = lane.own if given.stream is None else given.stream
        self.results: list[Any] = []
        self.instance: Instance | None = None
        self.blocks: list[Block] = []
        """Pinned memory that the device may still read or write."""
        self.status: Block | None = None
        self._going: list[tuple[int, int, int]] = []

    @property
    def waits(self) -> bool:
        """Whether the host has to wait before results can be handed over."""
        return bool(self._going) or self.status is not None

    def statuses(self) -> Sequence[int]:
        """What the kernels that check have left, once the run has been waited for."""
        if self.status is None:
            return ()
        return list((ctypes.c_int64 * (prelude.STATUS_WORDS * len(self.recipe.checked))).from_address(self.status.address))

    # ------------------------------------------------------------------------------------------------------------------- issuing

    def issue(self, event: int = 0) -> None:
        """Hand the run to the device; `event`, if one is given, records its end."""
        lane, recipe, given = self.lane, self.recipe, self.given
        coming, going, total = self._places()
        base = lane.reserve(total) if total else 0
        instance = self.instance = lane.instance(recipe)
        instance.place(given.arena or base)
        inputs = given.addresses
        if given.host:
            inputs = inputs.copy()
            for number, offset in coming.items():
                inputs[number] = base + offset
        outputs = self._outputs(base, going)
        instance.give(inputs, outputs)
        commands = lane.commands
        commands.clear()
        streams, first = lane.streams(self.main, recipe.streams - 1, given.others)
        if self.main != lane.own or lane.last != lane.own:
            # Also on the stream of the last run: a new stream may have the handle of one that is gone.
            commands.add(WAIT, 0, lane.done)
        for n in range(first, first + len(given.others)):
            # What waits for an event waits for what it recorded last: it can be recorded again at once.
            commands.add(RECORD, lane.done, n)
            commands.add(WAIT, 0, lane.done)
        lane.unfinished, lane.last = True, self.main
        for number, offset in coming.items():
            self._fetch(number, base + offset, streams)
        self._prepare(instance)
        self._kernels(instance)
        self._bring(inputs, outputs)
        commands.add(RECORD, lane.done, 0)
        if event:
            commands.add(RECORD, event, 0)
        for n in range(first, first + len(given.others)):
            commands.add(WAIT, n, lane.done)
        lane.driver.issue(lane.device, commands, streams)
        if instance.usable is not None:
            instance.dirty.clear()

    def _places(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Offsets in the arena of the arrays on their way to and from the host, and what the arena has to hold."""
        given, end = self.given, 0 if self.given.arena else self.recipe.bytes
        coming: dict[int, int] = {}
        going: dict[int, int] = {}
        for number in given.host:
            coming[number] = end
            end += _up(self.recipe.inputs[number])
        if given.to_host:
            for number, (shape, dtype) in enumerate(self.recipe.plan.results):
                if number not in given.into:
                    going[number] = end
                    end += _up(size_of(shape, dtype))
        return coming, going, end

    def _outputs(self, base: int, going: Mapping[int, int]) -> list[int]:
        """Arrays for results, and where kernels write them."""
        out, given, lane = [], self.given, self.lane
        for number, (shape, dtype) in enumerate(self.recipe.plan.results):
            if number in given.into:
                array, address = given.into[number]
            elif given.to_host:
                array, host, size = self.pool.array(shape, dtype)
                address = base + going[number]
                if size:
                    self._going.append((host, address, size))
            else:
                array, address = lane.driver.array(lane.device, shape, dtype, self.main)
            self.results.append(array)
            out.append(address)
        return out

    def _fetch(self, number: int, target: int, streams: int) -> None:
        """An array of the host to the device, in pieces: while one is on its way the next is copied to pinned memory."""
        size, source = self.recipe.inputs[number], self.given.addresses[number]
        if not size:
            return
        lane, block = self.lane, self.pool.take(size)
        self.blocks.append(block)
        for offset in range(0, size, CHUNK):
            part = min(CHUNK, size - offset)
            ctypes.memmove(block.address + offset, source + offset, part)
            lane.commands.add(COPY, target + offset, block.address + offset, part, 0)
            if offset + part < size:
                lane.driver.issue(lane.device, lane.commands, streams)
                lane.commands.clear()

    def _prepare(self, instance: Instance) -> None:
        """What kernels find: addresses in the fixed block, empty statuses."""
        commands, recipe = self.lane.commands, self.recipe
        if instance.fixed_dirty:
            # From pageable memory: the driver takes the bytes before the call returns.
            commands.add(COPY, instance.fixed_at, instance.fixed_twin, len(recipe.fixed), 0)
            instance.fixed_dirty = False
        if recipe.checked:
            commands.add(FILL, instance.base + recipe.status, 0, STATUS_BYTES * len(recipe.checked), 0)

    def _kernels(self, instance: Instance) -> None:
        """The kernels: by the graph if there is one, with the arguments that have changed, else one by one."""
        commands, graph = self.lane.commands, instance.usable
        if graph is None:
            if len(instance.body):
                commands.add(CALL, instance.body.address, len(instance.body))
            return
        instance.retold = instance.retold or bool(instance.dirty)
        for command in sorted(instance.dirty):
            commands.add(*graph.retold(command))
        commands.add(REPLAY, graph.executable, 0)

    def _bring(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Results that are copies of others, then results for the host, and the statuses."""
        commands, recipe = self.lane.commands, self.recipe
        for kind, number, result in recipe.plan.copies:
            size = size_of(*recipe.plan.results[result])
            if size:
                commands.add(COPY, outputs[result], inputs[number] if kind == "input" else outputs[number], size, 0)
        for host, address, size in self._going:
            commands.add(COPY, host, address, size, 0)
        if recipe.checked and self.instance is not None:
            size = STATUS_BYTES * len(recipe.checked)
            self.status = self.pool.take(size)
            self.blocks.append(self.status)
            commands.add(COPY, self.status.address, self.instance.base + recipe.status, size, 0)


def size_of(shape: Sequence[int], dtype: DType) -> int:
    """Bytes of a dense array."""
    size = dtype.bytes
    for n in shape:
        size *= n
    return size


def _up(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN
