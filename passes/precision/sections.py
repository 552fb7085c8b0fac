"""What the contract of an operator becomes when some of its operands are codes."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Apply, FloatLit, IntLit, Items, Name, Operand, Operator, Read, Scoped, Section, Setting, Value
from pipelink_ir.ir.walk import reads_in
from pipelink_ir.passes.contracts.values import number
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.precision.codes import Codes, constant_of, ordered


class NoCode(Exception):
    """A border of a coded operand has no code; the text says why."""


def sections_on_codes(op: Operator, codes: Mapping[str, Codes], locals: Mapping[str, str], results: frozenset[str] = frozenset()) -> tuple[Section, ...]:
    """The sections of an operator some operands of which are codes. `locals`: those that are read through a local, which has the border then;
    `results`: those that are codes, too: then the operator chooses among codes, and a border that has none is the lowest or highest one.

    What is asked of dtypes and what is promised of values speaks of them no more, nor does a schedule, which was made for other bodies. A border that
    spoke of all operands is written for each, since the operands that scales are have none."""
    out: list[Section] = []
    for s in op.sections:
        if s.name == "schedule":
            continue
        entries = [e for entry in s.entries if not (s.name == "semantic" and isinstance(entry, Scoped) and entry.tensor in results)
                   for e in _entries(op, s.name, entry, codes)]
        if entries:
            out.append(replace(s, entries=tuple(entries)))
    borders = [Scoped(locals.get(o.name, o.name), (b,)) for o in op.operands if (b := _border(op, o.name, codes.get(o.name), bool(results))) is not None]
    borders += [c for o in op.operands if o.name in codes and (c := _border_of_scales(op, o, codes[o.name])) is not None]
    if not borders:
        return tuple(out)
    at = next((k for k, s in enumerate(out) if s.name == "memory"), None)
    if at is None:
        return (Section("memory", tuple(borders)), *out)
    return (*out[:at], replace(out[at], entries=_merged((*out[at].entries, *borders))), *out[at + 1:])


def _merged(entries: tuple[Setting | Scoped, ...]) -> tuple[Setting | Scoped, ...]:
    """Settings of one value together."""
    found: dict[str, Scoped] = {}
    plain: list[Setting] = []
    for e in entries:
        if isinstance(e, Setting):
            plain.append(e)
        else:
            before = found.get(e.tensor)
            found[e.tensor] = e if before is None else replace(before, settings=(*before.settings, *e.settings))
    return (*plain, *found.values())


def _entries(op: Operator, section: str, entry: Setting | Scoped, codes: Mapping[str, Codes]) -> list[Setting | Scoped]:
    operands = {o.name for o in op.operands}
    if isinstance(entry, Setting):
        return [] if section == "memory" and entry.key in ("dtypes", "varies", "border") else [entry]
    if section == "semantic" and entry.tensor in codes:
        return []
    settings = tuple(s for s in entry.settings if not (section == "memory" and (
        (s.key == "border" and entry.tensor in operands) or (s.key == "inplace" and isinstance(s.value, Read) and s.value.tensor in codes))))
    if section == "memory" and entry.tensor in codes and entry.tensor not in operands:
        settings = tuple(_on_codes(s, codes[entry.tensor], False) if s.key == "border" else s for s in settings)
    return [replace(entry, settings=settings)] if settings else []


def _border(op: Operator, operand: str, codes: Codes | None, choosing: bool) -> Setting | None:
    """The border of an operand, written for it alone."""
    found = contracts.setting(op, "memory", "border", operand)
    if found is None:
        return None
    type = next(o.type for o in op.operands if o.name == operand)
    report = Report()
    modes = contracts.border_of(op, operand, len(type.dims), True, report)
    if all(mode == "none" for mode, _ in modes):
        return None
    if codes is None:
        return found.setting
    if not read_outside(op, operand):
        return None
    return _on_codes(found.setting, codes, choosing)


def _on_codes(border: Setting, codes: Codes, choosing: bool) -> Setting:
    """A border of values as one of their codes."""
    value = border.value
    if isinstance(value, Items):
        items = [_coded(v, codes, choosing) for v in value.items]
        return replace(border, value=replace(value, items=tuple(ordered(items, codes) if codes.dtype != "i4" else items)))
    return replace(border, value=_coded(value, codes, choosing))


def read_outside(op: Operator, operand: str) -> bool:
    """Whether a border answers reads of an operand."""
    return any("border" in r.access for t in typed_operator(op).tensors.values() for p in t.pieces for r in reads_in(p.value) if r.tensor == operand)


def _border_of_scales(op: Operator, o: Operand, codes: Codes) -> Scoped | None:
    """What answers a read of the scale of a place outside: the scale of the place that the border takes the value from; under a constant, whose code is
    that of 0.0 then, any."""
    if codes.scale not in ("channel", "block") or not read_outside(op, o.name):
        return None
    modes = [mode for mode, _ in contracts.border_of(op, o.name, len(o.type.dims), True, Report())]
    if codes.scale == "block" and modes[codes.axis or 0] in ("reflect", "reflect101", "wrap"):
        raise NoCode(f"its border along the blocks of '%{o.name}' is {modes[codes.axis or 0]}")
    own = [m for k, m in enumerate(modes) if codes.scale == "block" or k == codes.axis]
    if all(m == "none" for m in own):
        return None
    items: list[Value] = [Apply("constant", (FloatLit(1.0),)) if m == "constant" else Name(m) for m in own]
    return Scoped(f"{o.name}.scale", (Setting("border", items[0] if len(items) == 1 else Items(tuple(items))),))


def _coded(border: Value, codes: Codes, choosing: bool) -> Value:
    if not isinstance(border, Apply) or border.fn != "constant":
        return border
    value = number(border.args[0])
    if value is None:
        raise NoCode("its border is a constant that is not known before the call")
    if not isfinite(value) and not choosing:
        raise NoCode("its border is no finite number")
    code = constant_of(value, codes)
    if isinstance(code, IntLit | FloatLit) and not choosing and not isinstance(codes.scale, str) and isinstance(codes.zero, int):
        beyond = abs((code.value - codes.zero) * codes.scale - value)
        if beyond > 0.51 * codes.scale:
            raise NoCode(f"its border, {value:g}, is beyond what its codes stand for")
    if code is None:
        others = " or 'scheme = symmetric'" if value == 0 else ""
        raise NoCode(f"its border is a constant, which has no code before ranges are found at the call (calibrated ranges{others} would give it one)")
    return replace(border, args=(code,))
