"""Whether two definitions over one box are worth one thread a place for both, rather than threads of their own in one launch.

    joint    bytes that both read are moved once; a thread does the work of both, one after the other
    apart    the threads are split among them: there are more of them, each does less

What is weighed, in ns: bytes read once instead of twice at the rate of the memory, against work that waits because the device has threads to spare.
    saved = bytes / BYTES        lost = (a + b) * max(1, places / HELD) * OPERATION - max(a, b, (a + b) * places / HELD) * OPERATION
Where nothing is shared nothing is saved, and they go apart.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from pipelink_ir.ir.nodes import Range
from pipelink_ir.ir.typed import Tensor, TypedOperator
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.scheduling.costs import Costs
from pipelink_ir.passes.scheduling.counts import guess

BYTES = 4000.0
"""Bytes that memory moves in a ns."""
HELD = float(1 << 18)
"""Threads that a device runs at once."""
OPERATION = 2.0
"""ns of an operation that waits for the one before."""
NOTICED = 0.125
"""What is shared counts only if it is so much of the bytes that a definition writes."""


def joint_pays(op: TypedOperator, t: Tensor, shared: Iterable[str], own: float, others: float) -> bool:
    """Whether a definition is computed in the threads of others that read `shared` as well. `own` and `others` is the work of a place."""
    places = elements(t)
    size = sum(elements(op.tensors[n]) * op.tensors[n].dtype.bytes for n in shared)
    if size < NOTICED * places * t.dtype.bytes:
        return False
    both = own + others
    lost = (both * max(1.0, places / HELD) - max(own, others, both * places / HELD)) * OPERATION
    return size / BYTES >= lost


def work_of(op: TypedOperator, inline: Callable[[str], bool], t: Tensor) -> float:
    """The work of a place, each local that is evaluated there counted once: what is read at one place is found again."""
    costs = Costs(op, lambda _: 1.0)
    seen = {t.name}
    left, total = [t], 0.0
    while left:
        pieces = left.pop().pieces
        total += max((costs.of(p.value) for p in pieces), default=1.0)
        new = {r.tensor for p in pieces for r in reads_in(p.value) if inline(r.tensor)} - seen
        seen |= new
        left += [op.tensors[n] for n in sorted(new)]
    return total


def elements(t: Tensor) -> float:
    """Elements of a tensor; sizes that are not known are guessed."""
    return prod((guess(Range("", lo, hi, span=hi.span)) for lo, hi in t.shape), start=1.0)
