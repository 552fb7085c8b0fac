"""Arrays bound to the inputs of a pipeline, fast: what was decided for arrays of one form is not decided again.

Three ways, each falling back to the next:
1. The same objects as at the last call: their pointers, shapes and strides are compared with those seen then.
2. NumPy arrays, torch tensors and views whose form (shapes, strides, layouts) was seen before: dtypes and pointers are read, the form is looked up.
3. Anything else: `matching.py` reads, checks and explains.

Arrays are read where they are. One whose memory a kernel cannot read as it is (strided, or at an odd address) is packed into memory of its own before each
run, which its `Entry` says; where a contract asks for more than the array is, that is an error unless copies are allowed.
"""
from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DTYPES, DType
from pipelink_ir.ir.nodes import Module, Pipeline
from pipelink_ir.passes.ledger import Entry
from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.demands import computed, demands, in_place
from pipelink_ir.runtime.matching import Decision, Matching
from pipelink_ir.runtime.pointers import cell_of, pointer_reader
from pipelink_ir.runtime.readers import is_torch, read
from pipelink_ir.runtime.tensor import TensorView

COPIES = ("allow", "refuse")

FORMS = 256
"""Decisions kept by one pipeline."""


class Bound:
    """Arrays that fit, in the order of the signature. `addresses` is where they begin, `shapes` what they measure, `sizes` the symbols' values; `packed` are
    the numbers of the inputs that a kernel cannot read where they are, `entries` say why."""

    __slots__ = ("addresses", "entries", "names", "packed", "shapes", "sizes", "sources")

    def __init__(self, names: tuple[str, ...], sources: tuple[Any, ...], addresses: list[int], decision: Decision, packed: tuple[int, ...],
                 entries: tuple[Entry, ...]) -> None:
        self.names, self.sources, self.addresses = names, sources, addresses
        self.shapes, self.sizes, self.packed, self.entries = decision.shapes, decision.sizes, packed, entries

    @property
    def arrays(self) -> dict[str, Any]:
        """NumPy arrays over the same memory, by name."""
        return {name: self.array(k) for k, name in enumerate(self.names)}

    def array(self, number: int) -> Any:
        """One of them."""
        import numpy as np
        source = self.sources[number]
        return source if type(source) is np.ndarray else read(source).numpy()

    def view(self, number: int) -> TensorView:
        """One of them as a view."""
        return read(self.sources[number])

    def dense(self) -> tuple[list[int], list[Any]]:
        """Addresses at which every input lies densely, and what has to be kept while they are used: fresh copies of those that do not lie so."""
        import numpy as np
        addresses, kept = self.addresses.copy(), []
        for number in self.packed:
            source = self.array(number)
            copy = np.empty(source.shape, source.dtype)
            copy[...] = source
            kept.append(copy)
            addresses[number] = pointer_reader()(copy)
        return addresses, kept

    @property
    def notes(self) -> tuple[str, ...]:
        """What is copied and why, as text."""
        return tuple(f"{e.what}, {e.bytes} bytes: {e.reason}" for e in self.entries)


class Binder:
    """Binds arrays to one pipeline. Calls may come from several threads."""

    def __init__(self, contracts: Module, pipeline: Pipeline, copies: str = "refuse", look: Callable[[Pipeline, Matching], None] | None = None,
                 devices: frozenset[str] = frozenset(("cpu",))) -> None:
        """`contracts` is the module whose contracts count, `look` is shown every check (and then every call is checked), `devices` is where arrays may be."""
        import numpy as np
        self.pipeline, self.copies, self.look, self.devices = pipeline, copies, look, devices
        self.names = tuple(o.name for o in pipeline.inputs)
        asked = next((p for p in contracts.pipelines if p.name == pipeline.name), pipeline)
        self.demands, self.in_place = demands(contracts, asked), in_place(contracts, asked)
        self.edges = computed(asked)
        dtypes = [DTYPES[o.type.dtype] for o in pipeline.inputs]
        self._array = np.ndarray
        self._slots = tuple(zip(self.names, dtypes, [d.numpy() for d in dtypes], [d.bytes - 1 for d in dtypes], strict=True))
        self._tensor: Any = None
        self._torch: dict[Any, DType] = {}
        self._forms: dict[Any, _Form] = {}
        self._last: _Last | None = None
        self._seen: tuple[int, ...] = ()
        self._address = pointer_reader()

    def bind(self, given: Mapping[str, Any], origins: Mapping[str, str] | None = None, copies: str | None = None) -> Bound:
        """The arrays bound. Raises `ExecutionError`, as `ContractViolationError` where a contract is violated."""
        copies = copies or self.copies
        if copies not in COPIES:
            raise UsageError(f"copies is 'allow' or 'refuse', not {copies!r}")
        if self.look is None:
            last = self._last
            if last is not None and last.copies is copies and last.again(given):
                return Bound(self.names, tuple(given[n] for n in self.names), last.addresses.copy(), last.decision, last.packed, last.entries)
            bound = self._known(given, copies)
            if bound is not None:
                return bound
        return self._thorough(given, origins or {}, copies)

    def _known(self, given: Mapping[str, Any], copies: str) -> Bound | None:
        """Arrays of kinds and forms that were seen before, None for anything else."""
        if len(given) != len(self._slots):
            return None
        array_type, tensor_type, pointer = self._array, self._tensor, self._address
        sources, addresses, shapes, steps, held = [], [], [], [], []
        crooked = False
        try:
            for name, dtype, numpy_dtype, mask in self._slots:
                x = given[name]
                kind = type(x)
                if kind is array_type:
                    if x.dtype is not numpy_dtype and x.dtype != numpy_dtype:
                        return None
                    address = pointer(x)
                    steps.append(x.strides)
                elif kind is tensor_type:
                    if self._torch.get(x.dtype) is not dtype or not x.is_cpu or x.requires_grad or x.is_neg():
                        return None
                    address = x.data_ptr()
                    steps.append((x.stride(), tensor_type))
                    held.append(x.untyped_storage().nbytes() - x.storage_offset() * (mask + 1))
                elif kind is TensorView and x.dtype is dtype and x.device == "cpu" and (x.mirrors is None or self._still_there(x)):
                    address = x.address
                    steps.append((x.byte_strides, x.layout))
                else:
                    return None
                shapes.append(x.shape)
                sources.append(x)
                addresses.append(address)
                if address & mask:
                    crooked = True
        except (KeyError, RuntimeError):  # a name that is missing; a torch tensor without memory
            return None
        form = self._forms.get((copies, tuple(shapes), tuple(steps)))
        if form is None or (held and any(bytes < least for bytes, least in zip(held, form.storages, strict=True))):
            return None
        return self._bound(tuple(sources), addresses, form.decision, crooked, copies)

    def _still_there(self, view: Any) -> bool:
        """Whether the array that a view was made of still has the memory that the view describes."""
        array = view.mirrors
        if type(array) is self._tensor:
            return bool(array.data_ptr() == view.address and array.untyped_storage().nbytes() >= view.needs)
        return bool(type(array) is self._array and self._address(array) == view.address and array.shape == view.shape and array.strides == view.byte_strides)

    def _thorough(self, given: Mapping[str, Any], origins: Mapping[str, str], copies: str) -> Bound:
        matching = Matching(self.pipeline, self.demands, given, origins, copies, self.devices, self.edges)
        try:
            decision = matching.run()
        finally:
            if self.look is not None:
                self.look(self.pipeline, matching)
        views = [matching.views[name] for name in self.names]
        # What was made for this call alone (an array of a list of numbers, the memory of a capsule) is kept by its view.
        sources = tuple(given[n] if type(given[n]) in (self._array, TensorView) or is_torch(given[n]) else matching.views[n] for n in self.names)
        self._keep(sources, decision, views, copies)
        addresses = [v.address for v in views]
        return self._bound(sources, addresses, decision, any(a & slot[3] for a, slot in zip(addresses, self._slots, strict=True)), copies)

    def _keep(self, sources: tuple[Any, ...], decision: Decision, views: list[TensorView], copies: str) -> None:
        """Remember the decision under the key that `_known` will look it up by."""
        steps: list[Any] = []
        storages: list[int] = []
        for x, view in zip(sources, views, strict=True):
            if is_torch(x) or (type(x) is TensorView and is_torch(x.mirrors)):
                self._tensor = sys.modules["torch"].Tensor
            if is_torch(x):
                self._torch[x.dtype] = view.dtype
                steps.append((x.stride(), self._tensor))
                storages.append(arithmetic.extent(view.shape, view.byte_strides, view.dtype.bytes)[1])
            else:
                steps.append((x.byte_strides, x.layout) if type(x) is TensorView else x.strides)
        for old in list(self._forms)[:max(0, len(self._forms) - FORMS + 1)]:
            self._forms.pop(old, None)
        self._forms[(copies, decision.shapes, tuple(steps))] = _Form(decision, tuple(storages))

    def _bound(self, sources: tuple[Any, ...], addresses: list[int], decision: Decision, crooked: bool, copies: str) -> Bound:
        packed, entries = self._crooked(addresses, decision) if crooked else (decision.packed, decision.entries)
        # Objects that come a second time are worth remembering; numbers of objects are only a hint, since they are used again.
        seen = tuple(map(id, sources))
        if seen != self._seen:
            self._seen = seen
        elif self.look is None:
            self._last = _Last.of(self.names, sources, addresses, decision, packed, entries, copies, self._still_there)
        return Bound(self.names, sources, addresses, decision, packed, entries)

    def _crooked(self, addresses: list[int], decision: Decision) -> tuple[tuple[int, ...], tuple[Entry, ...]]:
        """Elements at odd addresses are packed too."""
        packed, entries = list(decision.packed), list(decision.entries)
        for number, (address, (name, dtype, _, mask)) in enumerate(zip(addresses, self._slots, strict=True)):
            if address & mask and number not in packed and 0 not in decision.shapes[number]:
                packed.append(number)
                entries.append(Entry("copy", f"'%{name}' is copied", f"its elements of {dtype.bytes} bytes lie at an odd address, {address:#x}",
                                     str(prod(decision.shapes[number]) * dtype.bytes), self.pipeline.inputs[number].span))
        return tuple(sorted(packed)), tuple(entries)


@dataclass(frozen=True, slots=True)
class _Form:
    """What was decided for arrays of one form, and how many bytes the storage of each torch tensor must have behind its offset."""

    decision: Decision
    storages: tuple[int, ...]


class _Last:
    """The objects of the last call with what was read from each: whether they come again unchanged is seen without asking much.

    They are not kept alive. A NumPy array is known by its number (a weak reference would forbid the caller to resize it); another array that got the same
    number is as good if it has the same pointer, shape, strides and dtype. A torch tensor has more state, and is referred to weakly."""

    __slots__ = ("addresses", "copies", "decision", "entries", "items", "packed")

    def __init__(self, items: tuple[tuple[Any, ...], ...], addresses: list[int], decision: Decision, packed: tuple[int, ...], entries: tuple[Entry, ...],
                 copies: str) -> None:
        self.items, self.addresses, self.decision, self.packed, self.entries, self.copies = items, addresses, decision, packed, entries, copies

    @classmethod
    def of(cls, names: tuple[str, ...], sources: tuple[Any, ...], addresses: list[int], decision: Decision, packed: tuple[int, ...],
           entries: tuple[Entry, ...], copies: str, still_there: Callable[[TensorView], bool]) -> _Last | None:
        """None where one of the objects cannot be recognised."""
        import numpy as np
        items: list[tuple[Any, ...]] = []
        for name, x, address in zip(names, sources, addresses, strict=True):
            if type(x) is np.ndarray:
                items.append((name, id(x), np.ndarray, cell_of(x), address, x.shape, x.strides, x.dtype))
            elif is_torch(x):
                items.append((name, id(x), None, weakref.ref(x), address, x.shape, x.stride(), x.untyped_storage().nbytes()))
            elif type(x) is TensorView:
                items.append((name, id(x), TensorView, weakref.ref(x), address, None, None, None if x.mirrors is None else still_there))
            else:
                return None
        return cls(tuple(items), addresses.copy(), decision, packed, entries, copies)

    def again(self, given: Mapping[str, Any]) -> bool:
        """Whether these are the same objects with the same memory."""
        if len(given) != len(self.items):
            return False
        try:
            for name, number, kind, cell, address, shape, steps, held in self.items:
                x = given[name]
                if kind is None:
                    if (x is not cell() or x.data_ptr() != address or x.shape != shape or x.stride() != steps or x.untyped_storage().nbytes() != held
                            or x.requires_grad):
                        return False
                elif kind is TensorView:
                    if x is not cell() or x.address != address or (held is not None and not held(x)):
                        return False
                elif id(x) != number or type(x) is not kind or cell.value != address or x.shape != shape or x.strides != steps or x.dtype is not held:
                    return False
        except (KeyError, RuntimeError, AttributeError):  # a name that is missing; a torch tensor without memory; None, which is what dead references give
            return False
        return True
