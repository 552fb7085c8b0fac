"""An operator that cuBLASLt computes, for given sizes; and whether the library is there at all."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from pipelink_ir.backends.cuda import cublaslt
from pipelink_ir.backends.cuda.cublaslt import Matrix, Problem
from pipelink_ir.backends.loops.form import Program
from pipelink_ir.backends.scalars import Number
from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.scheduling.libraries import GENERATED, listed, product_of
from pipelink_ir.passes.scheduling.library_products import Factor, LibraryProduct

CODE = "PL4101"
"""A library that cannot be had."""


class Unfit(Exception):
    """The library does not compute an operator for some sizes."""

    def __init__(self, op: str, why: str) -> None:
        super().__init__(why)
        self.op, self.why = op, why


@dataclass(frozen=True, slots=True)
class Found:
    """The operators that the library computes here, and why it does not compute others although their schedules say so."""

    products: Mapping[str, LibraryProduct]
    declined: Mapping[str, str]


def found(operators: Iterable[Operator]) -> Found:
    """What the library computes. Where it cannot be loaded, the compiler's own code takes its place if the contract lists that; else it is an error."""
    products = {o.name: p for o in operators if o.kernel is None and (p := product_of(o)) is not None}
    if not products:
        return Found({}, {})
    try:
        cublaslt.opened()
    except cublaslt.Missing as missing:
        ops = {o.name: o for o in operators}
        report = Report()
        for name in products:
            if GENERATED not in listed(ops[name]):
                refuse(ops[name], missing.why, missing.help, report)
        report.stop_if_failed()
        return Found({}, dict.fromkeys(products, f"{missing.why}: {missing.help}"))
    return Found(products, {})


def refuse(op: Operator, why: str, help: str, report: Report) -> None:
    """The error of an operator that nobody else may compute."""
    setting = contracts.setting(op, "compile", "library")
    place = setting.setting.span if setting is not None else op.name_span
    report.error(CODE, place, f"'@{written(op.name)}' runs on {', '.join(listed(op))} alone: {why}", (),
                 f"{help}; or add 'generated' to the list, the compiler's own code")


def problem_of(p: LibraryProduct, program: Program, shapes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Number]) -> Problem:
    """The product for given sizes. A factor is dense, so a line is as long as the lines, or the terms, that lie side by side in it."""
    dtypes = {b.name: b.memory.name for b in program.kernels[0].buffers}
    result = shapes[p.result]
    rows, columns, batch = (prod(result[k] for k in axes) for axes in (p.rows, p.columns, p.batch))
    terms = prod(shapes[p.left.tensor][k] for k in p.left.terms)

    def matrix(f: Factor, turned: bool, lines: int) -> Matrix:
        return Matrix(dtypes[f.tensor], turned, terms if f.along else lines, lines * terms)

    alpha = p.alpha if p.scale is None else float(attributes[p.scale])
    return Problem(rows, columns, terms, batch, matrix(p.left, not p.left.along, rows), matrix(p.right, p.right.along, columns),
                   Matrix(dtypes[p.result], False, columns, rows * columns), p.bias is not None, p.act, alpha, p.tf32)
