"""An operator on codes: the same body, in which coded operands are read as integers (or f8) and their scales stand outside of the sums.

With x = sx (qx - zx) and w = sw (qw - zw) a sum of K products is

    sum(x w) = sx sw (sum(qx qw) - zx sum(qw) - zw sum(qx) + K zx zw)

(B. Jacob et al., arXiv:1712.05877, equations 4 to 8; the sums of codes are taken in i32). The first sum is the product of two matrices of bytes; the sum of the
codes of a weight does not change from call to call and is an operand of its own, `%w.sum`. A scale for each channel of the result stays outside in the same
way; with blocks the sum is taken block by block, each with its scale (T. Dettmers et al., arXiv:2110.02861, section 2). Where the other factor is a float
the scale still stands outside, and the code is an exact f16 or bf16 if the operand was one. Everywhere else a code is turned into its value where it is read.

What is read outside of a coded operand with a constant border is the code of the constant: of 0.0 the zero point, which stands for it exactly.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import ProgramError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Axis, Define, Let, Operand, Operator
from pipelink_ir.ir.walk import names_in
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.infer.specialise import names_of
from pipelink_ir.passes.precision.codes import Codes, code_type, scale_type, zero_type
from pipelink_ir.passes.precision.contraction import Contractions
from pipelink_ir.passes.precision.floats import short
from pipelink_ir.passes.precision.reading import Declined
from pipelink_ir.passes.precision.sections import NoCode, sections_on_codes


def quantised(op: Operator, codes: Mapping[str, Codes], name: str) -> Operator | str:
    """`op` with some operands as codes: they keep their places, and behind the last parameter stand, in the order of the operands, `%x.scale`, `%x.zero` and
    `%x.sum` for those that need them. The results are what they were. A text says why that cannot be.

    Conditions under which the sums fit i32, where sizes are not known, are in the `where` of the new operator and not in that of the old one."""
    try:
        made = _Rewriter(op, dict(codes)).run(name)
        typed_operator(made)
    except (Declined, NoCode) as e:
        return str(e)
    except ProgramError as e:
        return f"on codes it could not be shown to be right: {e.diagnostics[0].message}"
    return made


@dataclass(slots=True)
class _Rewriter(Contractions):
    """One operator."""

    def run(self, name: str) -> Operator:
        op = self.op
        if op.compute is None:
            raise Declined("it has no compute")
        if op.kernel is not None:
            raise Declined("it is computed by a kernel of its own")
        self.types = {o.name: o.type for o in op.operands}
        self.taken = names_of(op) | {t.tensor for t in op.compute.body if isinstance(t, Define)} | {o.name for o in (*op.operands, *op.results)}
        self._check()
        self.join()
        self.governed = contracts.empty(op) is not None
        self.attributes = frozenset(a.name for a in op.attributes if a.type == "dim")
        self.dims = frozenset(n for o in op.operands for d in o.type.dims for n in names_in(d)) - self.attributes
        for item in op.compute.body:
            if isinstance(item, Let):
                self.body.append(replace(item, value=self.value(item.value, ())))
            else:
                around = tuple(a.index for a in item.axes if isinstance(a, Axis))
                self.body.append(replace(item, value=self.piece(item, around)))
        self._bound()
        params = [replace(p, type=code_type(p.type, self.codes[p.name])) if isinstance(p, Operand) and p.name in self.codes else p for p in op.params]
        sections = sections_on_codes(op, self.codes, {n: f"{n}.code" for n in self.unpacked})
        made = replace(op, name=name, params=(*params, *self._operands()), where=(*op.where, *self.where), sections=sections,
                       compute=replace(op.compute, body=tuple(self.body)), gradient=None)
        return short(made) if sum(not c.is_int for c in self.codes.values()) > 1 else made

    def _check(self) -> None:
        defined = self.taken
        for n, c in self.codes.items():
            o = next((o for o in self.op.operands if o.name == n), None)
            if o is None or o.type.dtype not in DTYPES or not DTYPES[o.type.dtype].is_float:
                raise Declined(f"'%{n}' is no operand of floats")
            if c.dtype == "i4" and not o.type.dims:
                raise Declined(f"'%{n}' is one number, and i4 codes lie two to a byte")
            if any(f"{n}.{more}" in defined for more in ("scale", "zero", "sum", "code")):
                raise Declined(f"names such as '%{n}.scale' are in use")
            if isinstance(c.zero, int) and c.is_int and not c.info.lowest <= c.zero <= c.info.highest:
                raise Declined(f"the zero point {c.zero} of '%{n}' is no {c.dtype}")
            if c.shifted and not c.is_int:
                raise Declined(f"{c.dtype} has no zero point")
            if isinstance(c.scale, float | int) and not 0 < c.scale < float("inf"):
                raise Declined(f"the scale of '%{n}' is {c.scale}")
            if c.axis is not None and not 0 <= c.axis < len(o.type.dims):
                raise Declined(f"'%{n}' has no axis {c.axis}")

    def _bound(self) -> None:
        """An extent that two codes to a byte leave open must follow from another operand."""
        known = {n for o in self.op.operands for k, d in enumerate(o.type.dims) for n in names_in(d) if not self._packed(o, k)}
        known |= {a.name for a in self.op.attributes if a.type == "dim"}
        for o in self.op.operands:
            free = {n for k, d in enumerate(o.type.dims) if self._packed(o, k) for n in names_in(d)} - known
            if free:
                raise Declined(f"'{min(free)}' does not follow from the bytes of '%{o.name}', two codes in each")

    def _packed(self, o: Operand, axis: int) -> bool:
        pair = self.codes[o.name].pair if o.name in self.codes else None
        return pair is not None and pair % len(o.type.dims) == axis

    def _operands(self) -> list[Operand]:
        out: list[Operand] = []
        for o in self.op.operands:
            c = self.codes.get(o.name)
            if c is None:
                continue
            sums = self.sums.get(o.name)
            found = {"scale": scale_type(o.type, c), "zero": zero_type(c), "sum": sums.type(o.type, c) if sums is not None else None}
            out += [Operand(f"{o.name}.{n}", t, span=o.span) for n, t in found.items() if t is not None]
        return out
