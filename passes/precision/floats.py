"""Operators in another float dtype, and casts between them.

    op @linear.1(%x: tensor<NxKxf32>, %w: …, %b: …) -> (%y: tensor<NxMxf32>)       in f16
    op @linear_f16.1(%x: tensor<NxKxf16>, %w: …, %b: …) -> (%y: tensor<NxMxf16>)

Bodies stay as they are: the language reads f16, bf16 and f8 as f32, computes in f32 and rounds once, where it stores.
"""
from __future__ import annotations

from dataclasses import replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import (
    Axis,
    Cast,
    Compute,
    Define,
    IntLit,
    Items,
    Name,
    Operand,
    Operator,
    Read,
    Scoped,
    Section,
    Setting,
    TensorType,
)
from pipelink_ir.passes.precision.policy import Policy


def is_float(dtype: str) -> bool:
    return dtype in DTYPES and DTYPES[dtype].is_float


def varying(op: Operator) -> tuple[str, ...]:
    """The operands and results whose float dtype a policy may change: those that `varies` lists, else all floats of an operator with a list of `dtypes`."""
    floats = tuple(o.name for o in (*op.operands, *op.results) if is_float(o.type.dtype))
    written = contracts.setting(op, "memory", "varies")
    if written is not None and isinstance(written.setting.value, Items):
        named = {i.tensor for i in written.setting.value.items if isinstance(i, Read)}
        return tuple(name for name in floats if name in named)
    return floats if contracts.dtypes(op) is not None else ()


def admitted(op: Operator, dtype: str) -> bool:
    """Whether the contract of an operator allows a dtype."""
    listed = contracts.dtypes(op)
    return listed is None or dtype in contracts.words(listed.value)


def halves(op: Operator) -> list[str]:
    """The floats of 16 bits that a policy could have an operator compute with."""
    return [d for d in ("f16", "bf16") if varying(op) and admitted(op, d)]


def lowered(op: Operator, dtype: str, name: str, names: tuple[str, ...] | None = None) -> Operator:
    """The operator with a float dtype in place of the varying ones (or of those of `names`), and without policies."""
    change = frozenset(varying(op) if names is None else names)

    def put(o: Operand) -> Operand:
        return replace(o, type=replace(o.type, dtype=dtype)) if o.name in change else o
    params = tuple(put(p) if isinstance(p, Operand) else p for p in op.params)
    new = replace(op, name=name, params=params, results=tuple(map(put, op.results)), downgrades=(), gradient=None)
    return sharing_kept(short(new) if dtype.startswith("f8") else new)


def short(op: Operator) -> Operator:
    """The operator with sums of products of f8 that have as many bits as tensor cores have for them: who asks for f8 has chosen so few digits of the factors
    that these do not matter."""
    found = contracts.setting(op, "compile", "accuracy")
    asked = tuple(Scoped(n, (Setting("accuracy", Name("f8")),)) for n in dict.fromkeys(d.tensor for d in contracts.with_products(op)))
    if found is not None or not asked:
        return op
    own = next((s for s in op.sections if s.name == "compile"), None)
    if own is None:
        return replace(op, sections=(*op.sections, Section("compile", asked)))
    return replace(op, sections=tuple(replace(s, entries=(*s.entries, *asked)) if s is own else s for s in op.sections))


def taken_over(op: Operator) -> dict[str, str]:
    """Results that take over the memory of an operand, with that operand."""
    found = {r.name: f.setting.value for r in op.results if (f := contracts.setting(op, "memory", "inplace", r.name)) is not None}
    return {name: v.tensor for name, v in found.items() if isinstance(v, Read)}


def sharing_kept(op: Operator) -> Operator:
    """The operator without `inplace` between what does not have the same size any more."""
    if not taken_over(op):
        return op
    return replace(op, sections=_sharing_kept(op))


def _sharing_kept(op: Operator) -> tuple[Section, ...]:
    dtypes = {o.name: o.type.dtype for o in (*op.operands, *op.results)}

    def fits(s: Setting, result: str) -> bool:
        if s.key != "inplace" or not isinstance(s.value, Read) or s.value.tensor not in dtypes:
            return True
        return DTYPES[dtypes[result]].bytes == DTYPES[dtypes[s.value.tensor]].bytes
    out: list[Section] = []
    for section in op.sections:
        entries: list[Setting | Scoped] = []
        for e in section.entries if section.name == "memory" else ():
            if isinstance(e, Scoped) and e.tensor in dtypes:
                settings = tuple(s for s in e.settings if fits(s, e.tensor))
                entries += [replace(e, settings=settings)] if settings else []
            else:
                entries.append(e)
        if section.name != "memory":
            out.append(section)
        elif entries:
            out.append(section if len(entries) == len(section.entries) and all(a == b for a, b in zip(entries, section.entries, strict=True))
                       else replace(section, entries=tuple(entries)))
    return tuple(out)


def with_clause(op: Operator, policy: Policy) -> Operator:
    """The operator as a clause wants it compiled: with its `block` and `library`, for whatever architecture."""
    new: list[Setting | Scoped] = []
    gone = {"arch"}
    if policy.block is not None:
        new.append(Setting("block", Items(tuple(map(IntLit, policy.block)))))
        gone.add("block")
    if policy.library is not None:
        # A clause says what is to be used on a device, not that there is nothing else: what a library turns out not to compute is generated, and the ledger
        # says why.
        names = dict.fromkeys((*policy.library, "generated"))
        new.append(Setting("library", Items(tuple(map(Name, names)))))
        gone.add("library")
    sections: list[Section] = []
    for s in op.sections:
        if s.name != "compile":
            sections.append(s)
            continue
        kept = tuple(e for e in s.entries if isinstance(e, Scoped) or e.key not in gone)
        if kept or new:
            sections.append(replace(s, entries=(*kept, *new)))
            new = []
    if new:
        sections.append(Section("compile", tuple(new)))
    return op if tuple(sections) == op.sections and not op.downgrades else replace(op, sections=tuple(sections), downgrades=())


def caster(t: TensorType, to: str, name: str) -> Operator:
    """The built-in `@std.cast` of a type in symbols of an operator (`own_symbols`), as inference specialises it."""
    axes = tuple(f"d{k}" for k in range(len(t.dims)))
    body = Define("y", tuple(map(Axis, axes)), Cast(to, Read("x", tuple(map(Name, axes)))))
    source = TensorType(t.dims, t.dtype)
    return Operator(name, (Operand("x", source),), (Operand("y", replace(source, dtype=to)),), compute=Compute((body,)))
