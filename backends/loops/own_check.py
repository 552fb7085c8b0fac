"""What holds for statements about sums that threads hold each for itself (`form_own.py`)."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from pipelink_ir.backends.loops import form
from pipelink_ir.ir.dtypes import DTYPES, F32, I64, DType


def check_own(kernel: form.Kernel, memory: Mapping[str, DType], shared: set[str], s: form.Own, need: Callable[[bool, str], None]) -> None:
    """`need` is told what has to hold, and the message if it does not."""
    need(all(memory.get(n) is F32 and n not in shared for n in s.targets), f"{', '.join(s.targets)} cannot hold sums")
    if isinstance(s, form.AcrossRow):
        need(s.fn in ("sum", "max"), f"rows are not combined by {s.fn}")
    if isinstance(s, form.Online):
        need(s.scale.dtype is F32 and not (isinstance(s.scale, form.Const) and s.scale.value <= 0), "scores are not scaled by a positive number")
    if isinstance(s, form.Attend):
        _check_attend(kernel, memory, shared, s, need)
    if not isinstance(s, form.Dot):
        return
    t = s.tiles
    need(kernel.threads == t.threads and t.warps[1] == 1 and t.tiles[1] % 2 == 0, f"the sums %{s.target} do not fit {kernel.threads} threads")
    need(t.sums is F32 and t.left.bytes == t.right.bytes == 2 and s.depth % 16 == 0, f"{s.depth} terms of {t.left} and {t.right} are no whole number of steps")
    sides = [(s.right, t.right, t.columns)]
    if isinstance(s.left, str):
        need(memory.get(s.left) is F32 and s.left not in shared, f"%{s.left} cannot be a factor")
    else:
        sides.append((s.left, t.left, t.rows))
    for f, dtype, lines in sides:
        step = f.pitch * dtype.bytes
        need(f.buffer in shared and memory[f.buffer] is dtype and f.index.dtype is I64, f"%{f.buffer} is no factor of %{s.target}")
        need(step % 16 == 0 and step // 16 % 2 == 1 and f.pitch >= (s.depth if f.along else lines), f"the lines of %{f.buffer} lie badly")


def _check_attend(kernel: form.Kernel, memory: Mapping[str, DType], shared: set[str], s: form.Attend, need: Callable[[bool, str], None]) -> None:
    """Attention that flows stands alone in the loop over blocks."""
    flow, last = s.flow, kernel.body[-1]
    need(isinstance(last, form.For) and s in last.body and kernel.threads == flow.threads and kernel.resident, "attention that flows stands elsewhere")
    need(flow.terms in range(16, 129, 16) and flow.columns in range(32, 129, 32) and flow.factors.bytes == flow.values.bytes == 2, "there is no such flow")
    need(memory.get(s.maps) is I64 and s.maps not in shared, f"%{s.maps} cannot hold maps")
    need(s.scale.dtype is F32 and all(x.dtype is I64 for x in s.numbers), "a place of attention is no i64")
    need((s.chosen is None) == (s.chosen_at is None), "bits are nowhere")
    need(s.chosen is None or (memory.get(s.chosen) is DTYPES["u8"] and s.chosen not in shared), f"%{s.chosen} cannot hold bits")
    for p, dtype, at in ((s.q, flow.factors, s.q_at), (s.k, flow.factors, s.k_at), (s.v, flow.values, s.v_at)):
        need(memory.get(p.buffer) is dtype and p.buffer not in shared, f"%{p.buffer} is no factor of attention")
        need(len(p.sizes) == len(p.steps) == len(at) == 5 and 0 < p.row < 5, f"%{p.buffer} has no five axes")
