"""What an operator's contract says of itself, whoever calls it: keys, values, and lines that contradict each other.

Primary places are at the contract, notes at the signature, the `dtypes` or the definition that it contradicts.
"""
from __future__ import annotations

from collections.abc import Mapping

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Const, Expr, Items, Operator, Scoped, Setting
from pipelink_ir.ir.targets import TOOLCHAINS, arch_help, requirements
from pipelink_ir.ir.walk import names_in, walk
from pipelink_ir.passes.contracts.batch import check_batch
from pipelink_ir.passes.contracts.clause_words import check_block, check_library
from pipelink_ir.passes.contracts.inplace import check_inplace
from pipelink_ir.passes.contracts.padding import check_padding
from pipelink_ir.passes.contracts.policies import check_downgrade
from pipelink_ir.passes.contracts.values import integer, number


def check_declaration(op: Operator, operators: Mapping[str, Operator], report: Report) -> None:
    """Report every fault of the contract sections of one operator. `operators` are those that its nodes may call, if it is a graph."""
    contracts.check_keys(op, report)
    for section in op.sections:
        for entry in section.entries:
            scope = entry.tensor if isinstance(entry, Scoped) else None
            for s in entry.settings if isinstance(entry, Scoped) else (entry,):
                check = _CHECKS.get((section.name, s.key))
                if check is not None:
                    check(op, scope, s, report)
    for d in op.downgrades:
        check_downgrade(op, d, operators, report)
    _check_fast_math(op, report)
    for word in ("tf32", "f8"):
        _check_accuracy(op, word, report)


def _declared(op: Operator) -> Note:
    return Note(f"'@{op.name}' is declared here", op.signature)


def _check_align(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    n = integer(s.value)
    if n is None and isinstance(s.value, Expr) and names_in(s.value) & {a.name for a in op.attributes}:
        return
    if n is None or n < 1 or n & (n - 1):
        lower = 1 << max(0, (n or 64).bit_length() - 1) if n and n > 0 else 64
        report.error("align", s.span, f"an alignment is a power of two in bytes, not {contracts.describe(s.value)}", [_declared(op)],
                     f"write 'align = {lower}'")


def _check_streams(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    n = integer(s.value)
    if n is None or n < 1:
        report.error("streams", s.span, f"'max_streams' is how many nodes may be in flight, not {contracts.describe(s.value)}", [_declared(op)],
                     "write 'max_streams = 1' or more; without the key there is no limit")


def _check_range(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    ends = [number(i) for i in s.value.items] if isinstance(s.value, Items) else []
    if len(ends) != 2 or None in ends or not ends[0] <= ends[1]:  # type: ignore[operator]
        if isinstance(s.value, Items) and any(isinstance(i, Expr) and names_in(i) & {a.name for a in op.attributes} for i in s.value.items):
            return
        turned = [contracts.describe(i) for i in reversed(s.value.items)] if isinstance(s.value, Items) and len(ends) == 2 and None not in ends else ["0", "1"]
        report.error("range", s.span, f"a range is [lo, hi] with lo <= hi, not {contracts.describe(s.value)}", [_declared(op)],
                     f"write 'range = [{', '.join(turned)}]'")


def _check_arch(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    if requirements(s.value) is None:
        shown = contracts.describe(s.value)
        report.error("arch", s.span, f"{shown} is no architecture that can be compiled for", (), f"write 'arch = \">= sm_80\"'; {arch_help(shown)}")


def _check_toolchain(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    if contracts.word(s.value) not in TOOLCHAINS:
        report.error("attribute", s.span, f"'toolchain' is one of {', '.join(TOOLCHAINS)}", (),
                     did_you_mean(contracts.word(s.value) or "", TOOLCHAINS) or "write 'toolchain = nvrtc'")


def _check_fast_math(op: Operator, report: Report) -> None:
    """Under `fast_math` tests for NaN still work; whoever writes one beside it should know that they are what it is careless of elsewhere."""
    found = contracts.setting(op, "compile", "fast_math")
    if found is None or not contracts.fast_math(op) or op.compute is None:
        return
    for item in op.compute.body:
        for e in walk(item.value):
            name = e.fn if isinstance(e, Apply) else e.name if isinstance(e, Const) else None
            if name in ("isnan", "isinf", "nan", "inf"):
                report.warning("attribute", e.span, f"'{name}' stands in an operator with 'fast_math = true'", [Note("it says so here", found.setting.span)],
                               "drop 'fast_math', or keep NaN and infinities out; the test itself still works")
                return


def _check_accuracy(op: Operator, word: str, report: Report) -> None:
    """`accuracy = tf32` speaks of products of f32, `f8` of those of f8, and either asks for nothing anywhere else."""
    asked = [(e.tensor if isinstance(e, Scoped) else None, s) for section in contracts.sections(op, "compile") for e in section.entries
             for s in (e.settings if isinstance(e, Scoped) else (e,)) if s.key == "accuracy" and contracts.word(s.value) == word]
    products, dtypes = {d.tensor for d in contracts.with_products(op)}, {o.type.dtype for o in op.operands}
    narrow = frozenset(d for d in dtypes if d == "f32") if word == "tf32" else frozenset(d for d in dtypes if d.startswith("f8"))
    for tensor, s in asked:
        if not (products if tensor is None else products & {tensor}):
            report.error("attribute", s.span, f"'accuracy = {word}' speaks of sums of products, and there is none here", [_declared(op)],
                         "write it into the operator that has the product" if op.graph is not None else "leave it out")
        elif not narrow and dtypes <= frozenset(DTYPES):
            what = f"'accuracy = {word}' speaks of {'f32' if word == 'tf32' else word}, and no operand is: {', '.join(sorted(dtypes))}"
            report.error("attribute", s.span, what, [_declared(op)], "leave it out: tensor cores take these as they are" if word == "tf32" else "leave it out")


def _check_library(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    check_library(s, report)


def _check_block(op: Operator, scope: str | None, s: Setting, report: Report) -> None:
    check_block(s, {a.name for a in op.attributes}, report)


_CHECKS = {
    ("memory", "align"): _check_align, ("memory", "padding"): check_padding, ("memory", "inplace"): check_inplace,
    ("execution", "max_streams"): _check_streams, ("execution", "batch"): check_batch, ("semantic", "range"): _check_range,
    ("compile", "library"): _check_library, ("compile", "arch"): _check_arch, ("compile", "toolchain"): _check_toolchain, ("compile", "block"): _check_block,
}
