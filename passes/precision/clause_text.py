"""Clauses of policies as text: what the option of `push-policies` holds, and what the project file says."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipelink_ir.ir.diagnostics import ProgramError, UsageError
from pipelink_ir.ir.nodes import Downgrade
from pipelink_ir.ir.source import elsewhere
from pipelink_ir.ir.targets import Arch, arch_help, parse_arch


def clauses_in(texts: Sequence[str], arch: Arch) -> Downgrade | None:
    """The policy for a target among those that an option holds, `sm_75 { dtype = f16 } pipelink.yaml:3:10`: the one that names it exactly, else the one for
    the same architecture without its suffix."""
    found = {parse_arch(clause.target): clause for clause in map(_clause, reversed(texts))}
    return found.get(arch) or found.get(Arch(arch.kind, arch.sm))


def clause_text(target: str, settings: Sequence[tuple[str, str]], place: str = "") -> str:
    """A policy as `clauses_in` reads it."""
    inside = ", ".join(f"{key} = {value}" for key, value in settings)
    return f"{target} {{ {inside} }}" + (f" {place}" if place else "")


def read_clause(text: str) -> Downgrade | None:
    """The clause of a text, `sm_75 { dtype = f16 }`; None where it does not parse."""
    from pipelink_ir.grammar import parse
    try:
        module = parse(f"op @policy(%x: tensor<f32>) -> (%y: tensor<f32>) {{ downgrade {text} compute {{ %y = %x }} }}", "<policies>")
    except ProgramError:
        return None
    found = [d for o in module.operators for d in o.downgrades]
    return found[0] if len(found) == 1 and len(module.items) == 1 else None


def _clause(text: str) -> Downgrade:
    end = text.rfind("}") + 1
    path, line, column = (*text[end:].strip().rsplit(":", 2), "", "")[:3]
    span = elsewhere(path, int(line), int(column)) if line.isdigit() and column.isdigit() else elsewhere("<policies>", 1, 1)
    clause = read_clause(text[:end])
    if clause is None or clause.settings is None:
        raise UsageError(f"push-policies: '{text}' is no policy; write \"sm_75 {{ dtype = f16 }}\"")
    if parse_arch(clause.target) is None:
        raise UsageError(f"push-policies: '{clause.target}' is no target; {arch_help(clause.target)}")
    return replace(clause, settings=tuple(replace(s, span=span, key_span=span) for s in clause.settings), span=span)
