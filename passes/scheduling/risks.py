"""What may fail at run time, and so may be evaluated only where it stands: checked reads, reductions that have no value over nothing, negative powers of
integers, and what a guard keeps inside."""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.ir.functions import REDUCTIONS
from pipelink_ir.ir.nodes import Apply, Cast, Expr, IntLit, Read, Reduce
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.ir.walk import children, walk
from pipelink_ir.passes.scheduling.counts import unrolled


def power_may_fail(x: Expr) -> bool:
    """Whether `x` is an integer to a power that may be negative at run time, which is an error."""
    return isinstance(x, Apply) and x.fn == "**" and x.dtype is not None and x.dtype.is_int and not _not_negative(x.args[1])


def _not_negative(x: Expr) -> bool:
    """What is seen to be no less than 0 without a proof."""
    if isinstance(x, Cast) and x.implicit:
        return _not_negative(x.arg)
    if isinstance(x, Apply) and x.fn == "mod":
        return isinstance(x.args[1], IntLit) and x.args[1].value >= 0
    return isinstance(x, IntLit) and x.value >= 0


def may_fail(x: Expr, failing: set[str], strict: bool) -> bool:
    """Whether evaluating `x` may fail: checked reads, reductions that have no value over nothing, negative powers of integers."""
    if power_may_fail(x):
        return True
    if isinstance(x, Read) and ("check" in x.access or x.tensor in failing):
        return True
    if isinstance(x, Reduce) and strict and REDUCTIONS[x.kind].empty == "error" and not (unrolled(x) and x.where is None):
        return True
    return any(may_fail(c, failing, strict) for c in children(x))


def risky(x: Expr, failing: Callable[[str], bool], strict: bool) -> bool:
    """Whether `x` may be evaluated only where it stands: a check may fail in it, or a guard around it keeps its reads inside. `strict`: a reduction over
    nothing may be an error."""
    reads = [y for y in walk(x) if isinstance(y, Read)]
    return any("guarded" in y.access for y in reads) or may_fail(x, {y.tensor for y in reads if failing(y.tensor)}, strict)


def fails(op: TypedOperator, local: Callable[[str], bool]) -> Callable[[str], bool]:
    """Whether reading a tensor may fail: a local that is evaluated by its reader."""
    memo: dict[str, bool] = {}

    def failing(name: str) -> bool:
        if name not in memo:
            memo[name] = False
            memo[name] = local(name) and any(risky(p.value, failing, op.empty is None) for p in op.tensors[name].pieces)
        return memo[name]

    return failing
