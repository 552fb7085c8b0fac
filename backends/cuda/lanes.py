"""What one call at a time uses on a device: streams and events, the arena, and for each recipe its arguments with the addresses filled in.

A lane is held by one thread while it hands over a run, not until the device is done. The next run of the lane comes after it on the device: on the same stream
by itself, on another one by waiting for the event that ends every run. So the arena may be used again at once, whatever streams the callers work on.
"""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

from pipelink_ir.backends.cuda.cublaslt import Call
from pipelink_ir.backends.cuda.driver import CALL, FOREIGN, LAUNCH, LEGACY, RECORD, REPLAY, WAIT, Commands, DeviceError, Driver, Graph, quietly, usable
from pipelink_ir.backends.cuda.recipe import Recipe
from pipelink_ir.backends.cuda.spares import Spares

ROOM = 16
"""Streams of callers that a lane's table of streams has room for at first."""


KEPT = 16
"""Tables of commands that an instance keeps for sets of launches whose arguments change."""


class Owned:
    """Everything of a lane that has to be given back."""

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver, self.device = driver, device
        self.own = driver.stream(device)
        self.sides: list[int] = []
        self.events: list[int] = []
        self.memory: dict[int, int] = {}
        """Addresses with their sizes."""
        self.graphs: dict[int, Graph] = {}
        self.late = False
        """Whether the last run is one on the legacy default stream that `events[0]` has not recorded yet."""

    def record(self) -> None:
        """Record the end of the last run where that was put off."""
        if self.late:
            self.late = False
            table = (ctypes.c_void_p * 1)(LEGACY)
            self.driver.issue(self.device, Commands([(RECORD, self.events[0], 0)], 1), ctypes.addressof(table))

    def allocate(self, size: int) -> int:
        """Memory, from the pool, in the order of the lane's own stream."""
        address = self.driver.allocate(self.device, size, self.own)
        self.memory[address] = size
        return address

    def free(self, address: int) -> None:
        del self.memory[address]
        self.driver.free(self.device, address, self.own)

    def close(self) -> None:
        """Give back everything, memory when the last run is done; later where that must be recorded on a stream that is not free for it."""
        d = self.driver
        try:
            if self.late and usable() and not d.legacy_free(self.device):
                _put_off.append(self)
                return
        except DeviceError:
            pass  # a device that has failed: below each thing is tried by itself
        table = (ctypes.c_void_p * 1)(self.own)
        if self.events:
            quietly(self.record)
            quietly(lambda: d.issue(self.device, Commands([(WAIT, 0, self.events[0])], 1), ctypes.addressof(table)))
        for graph in list(self.graphs.values()):
            quietly(graph.close)
        for address in list(self.memory):
            quietly(lambda address=address: d.free(self.device, address, self.own))  # type: ignore[misc]
        for event in self.events:
            quietly(lambda event=event: d.close_event(self.device, event))  # type: ignore[misc]
        for stream in (*self.sides, self.own):
            quietly(lambda stream=stream: d.close_stream(self.device, stream))  # type: ignore[misc]


_put_off: list[Owned] = []
"""What could not be given back when its lane went."""


def catch_up() -> None:
    """Give back what was put off, as far as that can be done now."""
    for _ in range(len(_put_off)):
        _put_off.pop(0).close()


class Instance:
    """A recipe in a lane: words, the addresses of arguments, commands. `dirty` are the launches whose arguments changed since a graph last took them."""

    def __init__(self, lane: Lane, recipe: Recipe) -> None:
        self.lane, self.recipe = lane, recipe
        self.words = (ctypes.c_int64 * max(1, len(recipe.words)))(*recipe.words)
        self._arguments = (ctypes.c_void_p * max(1, sum(len(i.arguments) for i in recipe.issued)))()
        self.body = Commands(room=len(recipe.order) + 4 * recipe.streams)
        self.steps: dict[int, int] = {}
        """The step of the plan that a command of the body launches."""
        self.users: dict[int, list[int]] = {}
        self.dirty: set[int] = set()
        self.retold = False
        """Whether arguments have changed since the graph was made. They may change again, so they are looked at before it is replayed, which a graph of one
        set of arrays is spared."""
        self.calls: list[Call] = []
        """Calls of libraries."""
        self.graph: Graph | None = None
        self.base = 0
        self._fixed: Any = None
        self.fixed_at = 0
        self.fixed_dirty = False
        self._last: tuple[list[int], list[int]] = ([], [])
        self._again: dict[tuple[int, ...], Commands] = {}
        self._again_by: Graph | None = None
        self._given: list[tuple[int, bool, int, int, list[int]]] = []
        """Words that change from call to call: whether of a result, of which, how far behind its beginning, and the launches that have them among their
        arguments."""
        self._given_fixed = [p for p in recipe.pointers if p.of.kind in ("input", "result")]
        self._commands()
        for p in recipe.patches:
            if p.kind in ("input", "result"):
                self._given.append((p.word, p.kind == "result", p.number, p.offset, self.users.get(p.word, [])))
        self._fix()

    def _commands(self) -> None:
        recipe, lane, at = self.recipe, self.lane, 0
        word_at, pointer_at = ctypes.addressof(self.words), ctypes.addressof(self._arguments)
        events = [lane.event(n) for n in range(recipe.events)]
        if recipe.streams > 1:
            self.body.add(RECORD, events[0], 0)
            for stream in range(1, recipe.streams):
                self.body.add(WAIT, stream, events[0])
        for kind, a, b in recipe.order:
            if kind == "wait":
                self.body.add(WAIT, a, events[b])
            elif kind == "record":
                self.body.add(RECORD, events[a], b)
            else:
                issued, number = recipe.issued[a], len(self.body)
                for n, word in enumerate(issued.arguments):
                    self._arguments[at + n] = word_at + 8 * word
                    self.users.setdefault(word, []).append(number)
                launch = issued.launch
                if issued.product is not None:
                    call = issued.product.call([word_at + 8 * word for word in issued.arguments])
                    self.calls.append(call)
                    self.body.add(FOREIGN, call.function, call.argument, issued.stream)
                    self.steps[number] = issued.step
                    continue
                assert launch is not None
                self.body.add(LAUNCH, launch.function.handle, *launch.grid, *launch.block, launch.shared, issued.stream, pointer_at + 8 * at)
                self.steps[number] = issued.step
                at += len(issued.arguments)
        for stream in range(1, recipe.streams):
            self.body.add(RECORD, events[stream], stream)
            self.body.add(WAIT, 0, events[stream])

    def _fix(self) -> None:
        """The fixed block on the device, and its twin on the host."""
        if not self.recipe.fixed:
            return
        self._fixed = ctypes.create_string_buffer(bytes(self.recipe.fixed), len(self.recipe.fixed))
        self.fixed_at = self.lane.allocate(len(self.recipe.fixed))
        self.fixed_dirty = True
        for p in self.recipe.patches:
            if p.kind == "fixed":
                self.set(p.word, self.fixed_at + p.offset)

    @property
    def fixed_twin(self) -> int:
        """Where the host's twin of the fixed block lies."""
        return ctypes.addressof(self._fixed)

    def set(self, word: int, value: int) -> None:
        """How an argument gets another value: whoever changes one notes the launches that have it."""
        if self.words[word] != value:
            self.words[word] = value
            self.dirty.update(self.users.get(word, ()))

    def _point(self, place: int, value: int) -> None:
        slot = ctypes.c_int64.from_buffer(self._fixed, place)
        if slot.value != value:
            slot.value = value
            self.fixed_dirty = True

    def place(self, base: int) -> None:
        """The arena begins at `base`, or where what lies in it is aligned."""
        base = -(-base // self.recipe.plan.align) * self.recipe.plan.align
        if base == self.base:
            return
        self.base = base
        for p in self.recipe.patches:
            if p.kind == "arena":
                self.set(p.word, base + p.offset)
        for pointer in self.recipe.pointers:
            if pointer.of.kind == "arena":
                self._point(pointer.place, base + pointer.of.offset)

    def give(self, inputs: list[int], results: list[int]) -> None:
        """The addresses of inputs and results."""
        last = self._last
        if last[0] == inputs and last[1] == results:
            return
        self._last, words = (inputs.copy(), results.copy()), self.words
        for word, is_result, number, offset, users in self._given:
            value = (results[number] if is_result else inputs[number]) + offset
            if words[word] != value:
                words[word] = value
                self.dirty.update(users)
        for pointer in self._given_fixed:
            self._point(pointer.place, (inputs if pointer.of.kind == "input" else results)[pointer.of.number] + pointer.of.offset)

    def run_again(self, stream: int) -> bool:
        """Issue a run that is nothing but its kernels, behind the last run of the lane, which was on this stream. Whether a graph of its own would be quicker:
        arguments had changed, or they have before."""
        lane, graph, device = self.lane, self.usable, self.lane.device
        if stream == LEGACY:
            lane.owned.late = True
            if graph is None or self.dirty or not lane.driver.replay(device, graph, stream):
                lane.driver.issue(device, self._again_commands(False), lane.table(stream))
        else:
            lane.driver.issue(device, self._again_commands(True), lane.table(stream))
        if not self.dirty:
            return self.retold
        self.retold = True
        if graph is not None or self.graph is None:
            self.dirty.clear()
        return True

    def _again_commands(self, ordered: bool) -> Commands:
        """The commands: a replay, with the arguments that have changed told to the graph first, or the kernels; `ordered`: with the event of the lane."""
        graph, lane = self.usable, self.lane
        if self._again_by is not graph:
            self._again_by = graph
            self._again.clear()
        # The parameters of a node point to the words, so the same commands tell whatever stands there. Mostly the same few launches change.
        changed = (ordered, *self.dirty) if graph is not None else (ordered,)
        found = self._again.get(changed)
        if found is None:
            if len(self._again) >= KEPT:
                self._again.clear()
            told = [graph.retold(c) for c in changed[1:]] if graph is not None else []
            kernels = (CALL, self.body.address, len(self.body)) if graph is None else (REPLAY, graph.executable, 0)
            commands = [*told, kernels]
            found = self._again[changed] = Commands([(WAIT, 0, lane.done), *commands, (RECORD, lane.done, 0)] if ordered else commands)
        return found

    @property
    def usable(self) -> Graph | None:
        """The graph, if it can run with the present arguments: a library runs another kernel where arrays begin elsewhere than those of most calls, and a graph
        is of one kernel."""
        return self.graph if not self.calls or all(c.fits() for c in self.calls) else None

    def close(self) -> None:
        """Give back what belongs to this recipe alone."""
        self.drop_graph()
        while self.calls:
            quietly(self.calls.pop().close)
        if self.fixed_at:
            self.lane.free(self.fixed_at)
            self.fixed_at = 0

    def drop_graph(self) -> None:
        """Give the graph back."""
        graph, self.graph, self._again_by = self.graph, None, None
        self._again.clear()
        if graph is not None:
            self.lane.owned.graphs.pop(id(graph), None)
            quietly(graph.close)


class Lane:
    """Streams, events, arena and instances. `last` is the stream of the last run, on which `done` was recorded after it."""

    def __init__(self, driver: Driver, device: int) -> None:
        self.driver, self.device = driver, device
        catch_up()
        self.owned = Owned(driver, device)
        # At the end of the process the driver does it.
        weakref.finalize(self, self.owned.close).atexit = False
        self.own = self.last = self.owned.own
        """The lane's own stream, on which runs for arrays of the host go."""
        self._done = self._event(0)
        self.spares = Spares(driver)
        self.arena = self.arena_bytes = 0
        self.instances: dict[int, Instance] = {}
        self.commands = Commands(room=32)
        self._table: Any = None
        self._table_at = 0
        self._main: int | None = None
        self.unfinished = False
        """Whether the last run was not waited for: then memory of the host that belongs to the lane may still be in use."""
        self.held: list[Any] = []
        """What runs that are under way read, and nobody else may hold."""

    @property
    def done(self) -> int:
        """The event that records the end of the last run."""
        if self.owned.late:
            self.owned.record()
        return self._done

    def _event(self, number: int) -> int:
        events = self.owned.events
        while len(events) <= number:
            events.append(self.driver.event(self.device))
        return events[number]

    def event(self, number: int) -> int:
        """The event of that number of a recipe."""
        return self._event(number + 1)

    def instance(self, recipe: Recipe) -> Instance:
        """The recipe in this lane."""
        found = self.instances.get(id(recipe))
        if found is None:
            found = self.instances[id(recipe)] = Instance(self, recipe)
        return found

    def forget(self, recipe: Recipe) -> None:
        """A recipe that is no longer kept."""
        found = self.instances.pop(id(recipe), None)
        if found is not None:
            self.spares.forget(found)
            found.close()

    # ------------------------------------------------------------------------------------------------------------------- streams

    def streams(self, main: int, sides: int, others: Sequence[int]) -> tuple[int, int]:
        """(address of the table of streams, place of the first of `others` in it): the stream of the run, the lane's further ones, those of callers."""
        own = self.owned.sides
        while len(own) < sides:
            own.append(self.driver.stream(self.device))
        need = 1 + len(own) + len(others)
        if self._table is None or need > len(self._table):
            self._table = (ctypes.c_void_p * (need + ROOM))()
            self._table_at = ctypes.addressof(self._table)
        self._table[:need] = (main, *own, *others)
        self._main = main
        return self._table_at, 1 + len(own)

    def table(self, main: int) -> int:
        """The address of the table of streams for a run like the last one."""
        return self._table_at if main == self._main else self.streams(main, 0, ())[0]

    def _issue_own(self, *commands: tuple[int, ...]) -> None:
        table = (ctypes.c_void_p * 1)(self.own)
        self.driver.issue(self.device, Commands(commands), ctypes.addressof(table))
        self.last = self.own

    def join(self) -> None:
        """The own stream comes after the last run."""
        if self.last != self.own:
            self._issue_own((WAIT, 0, self.done), (RECORD, self.done, 0))

    # -------------------------------------------------------------------------------------------------------------------- memory

    def allocate(self, size: int) -> int:
        """Memory that every later run of the lane may use."""
        self.join()
        address = self.owned.allocate(size)
        self._issue_own((RECORD, self.done, 0))
        return address

    def free(self, address: int) -> None:
        """Give memory back that no run uses from now on."""
        self.join()
        self.owned.free(address)

    def reserve(self, size: int) -> int:
        """The arena, of at least `size` bytes; where it begins. It only grows."""
        if size > self.arena_bytes:
            if self.arena:
                old, self.arena, self.arena_bytes = self.arena, 0, 0
                self.free(old)
            self.arena = self.allocate(size)
            self.arena_bytes = size
        return self.arena

    # ------------------------------------------------------------------------------------------------------------------ the host

    def settle(self) -> None:
        """Wait on the host until the last run is done."""
        if self.unfinished:
            self.driver.wait(self.device, self.done)
            self.unfinished = False
        self.held.clear()

    def release(self) -> None:
        """Let go of what is no longer read."""
        if self.held and self.driver.done(self.device, self.done):
            self.held.clear()
