"""Whom the clauses of a policy speak of: labels inside a graph, and what of a clause fits one operator there."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pipelink_ir.ir import contracts
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Downgrade, Operator, Setting
from pipelink_ir.ir.source import Span
from pipelink_ir.ir.targets import Arch
from pipelink_ir.passes.contracts.values import number
from pipelink_ir.passes.precision.own_kernels import runs_kernel, why_not
from pipelink_ir.passes.precision.policy import CODED, KEYS

W = TypeVar("W")
Labels = tuple[tuple[str, W], ...]
"""Paths of labels with what is said of them; the path "" is the node itself and all that is inside."""

_OF_LOWERING = ("dtype", "weights", "scheme", "granularity", "ranges", "force")


@dataclass(frozen=True, slots=True)
class Given:
    """The settings of a clause by whom they speak of: for each label all that counts there, and what counts for nodes without one."""

    labels: tuple[tuple[str, tuple[Setting, ...]], ...]
    rest: tuple[Setting, ...]
    mixed: bool


def labels_of(clause: Downgrade) -> Given:
    """A clause taken apart."""
    settings = clause.settings or ()
    rest = tuple(s for s in settings if s.key in KEYS)
    shared = tuple(s for s in rest if s.key != "dtype")
    labels = tuple((s.key, (replace(s, key="dtype"), *shared)) for s in settings if s.key not in KEYS and s.key != "precision")
    return Given(labels, rest, any(s.key == "precision" for s in settings))


def below(labels: Labels[W], label: str | None) -> Labels[W]:
    """What labels say of a node with this one and of what is inside. A path that leads on wins over one that ended above."""
    out: dict[str, W] = {path: said for path, said in labels if not path}
    if label is not None:
        out |= {path[len(label) + 1:]: said for path, said in labels if path == label or path.startswith(label + ".")}
    return tuple(out.items())


def named(labels: Labels[W]) -> W | None:
    """What labels say of the node that they have led to."""
    return next((said for path, said in labels if not path), None)


def tightest(a: Setting | None, b: Setting | None) -> Setting | None:
    """The smaller one of two budgets."""
    if a is None or b is None:
        return a or b
    return b if (number(b.value) or 0) < (number(a.value) or 0) else a


def admitted(op: Operator) -> list[str]:
    """The dtypes that an operator says it can have, or those that it has."""
    allowed = contracts.dtypes(op)
    return contracts.words(allowed.value) if allowed is not None else list(dict.fromkeys(o.type.dtype for o in (*op.operands, *op.results)))


def float_dtypes(op: Operator) -> list[str]:
    """The float dtypes among those of its operands and results."""
    return [d for d in dict.fromkeys(o.type.dtype for o in (*op.operands, *op.results)) if d in DTYPES and DTYPES[d].is_float]


def word_of(settings: Sequence[Setting], key: str) -> str | None:
    """The word of a setting, None where it is not written."""
    return next((contracts.word(s.value) for s in settings if s.key == key), None)


def settings_of(asked: tuple[Setting, ...], own: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """What a label asks for, and of the operator's own clause what it says nothing of."""
    keys = {s.key for s in asked}
    return (*asked, *(s for s in own if s.key not in keys))


def fitted(op: Operator, settings: tuple[Setting, ...]) -> tuple[Setting, ...]:
    """The settings of a graph's clause that mean something for one operator inside; none if it has nothing to lower."""
    dtype, weights, floats = word_of(settings, "dtype"), word_of(settings, "weights"), float_dtypes(op)
    without: set[str] = set()
    if weights == dtype or not floats:
        without.add("weights")
    if not floats or (dtype not in CODED and floats == [dtype]):
        without.add("dtype")
    if dtype not in CODED:
        without |= {"scheme", "ranges"}
    if dtype not in CODED and (weights not in CODED or "weights" in without):
        without.add("granularity")
    left = {s.key for s in settings} - without
    if not left & {"dtype", "weights"}:
        without |= set(_OF_LOWERING)
    return tuple(s for s in settings if s.key not in without)


def kept_out(op: Operator, settings: tuple[Setting, ...], span: Span, arch: Arch) -> str | None:
    """Why an operator cannot have the dtype that a policy around asks for, as a reason for the ledger."""
    dtype = word_of(settings, "dtype")
    if not any(s.key in ("dtype", "weights") for s in settings):
        return None
    said = f"the policy at {span} lowers to {dtype or word_of(settings, 'weights')}"
    plain = dtype not in CODED or word_of(settings, "scheme") == "plain"
    library = next((tuple(contracts.words(s.value)) for s in settings if s.key == "library"), None)
    why = why_not(op, dtype, word_of(settings, "weights"), plain) if runs_kernel(op, arch, library) else None
    if why is not None:
        return f"declined: {said}, but the kernel of the user's own {why}"
    if dtype is not None and plain and dtype not in admitted(op):
        return f"declined: {said}, which is not among its dtypes: {', '.join(admitted(op))}"
    return None
