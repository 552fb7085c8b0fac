"""Ranges that an operator promises, against what its own definition gives."""
from __future__ import annotations

from pipelink_ir.ir.diagnostics import Note, Report
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.typed import TypedOperator
from pipelink_ir.passes.contracts.edges import declared_range, promises_of
from pipelink_ir.passes.contracts.ranges import UNKNOWN, of_dtype, result_ranges


def check_promises(typed: TypedOperator, report: Report) -> None:
    """Report a promised range that the definition leaves for operands that are what is asked of them. Only bounds that are attained count."""
    op = typed.op
    asked = {r.name: promises_of(op, r.name).get("range") for r in op.results}
    if not any(asked.values()):
        return
    given = {o.name: declared_range(promises_of(op, o.name).get("range")) or (of_dtype(DTYPES[o.type.dtype]) if o.type.dtype in DTYPES else UNKNOWN)
             for o in op.operands}
    for name, found in result_ranges(typed, given).items():
        setting = asked.get(name)
        promised = declared_range(setting)
        if setting is not None and promised is not None and found.misses(promised):
            pieces = [Note("it is defined here", p.span) for p in typed.tensors[name].pieces[:2]]
            report.error("range", setting.span, f"'%{name}' is promised in {promised}, but its definition gives {found}",
                         [*pieces, Note(f"'@{op.name}' is declared here", op.signature)],
                         f"write 'range = {found}', or scale or clamp '%{name}' in its definition")
