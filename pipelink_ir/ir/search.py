"""The search for a contradiction: linear reasoning first, then one case distinction after another.

A search that fails ends at the first case in which no contradiction is found, so that what cannot be proven costs little.
"""
from __future__ import annotations

from pipelink_ir.ir import linear
from pipelink_ir.ir.polynomial import Atom, Poly, of_atom
from pipelink_ir.ir.products import connected
from pipelink_ir.ir.system import Clause, System

SPLITS = 2
"""How many divisions are split."""

REMAINDERS = 4
"""Divisors up to this one are split into the cases of the remainder, when nothing else helps."""


def inconsistent(system: System, focus: list[Poly] | None, budget: list[int]) -> bool:
    """Whether nothing satisfies the system. `budget` holds how many more systems may be tried."""
    if system.false:
        return True
    budget[0] -= 1
    if budget[0] < 0:
        return False
    if linear.infeasible(system.numbered(focus)[0]):
        return True
    clause = _next_clause(system, focus)
    if clause is None:
        clause = _remainders(system, focus)
        if clause is None:
            return False
        system.clauses.append(clause)
    for alternative in clause.alternatives:
        branch = system.copy()
        branch.clauses.remove(clause)
        start = len(branch.rows)
        branch.require_all(alternative)
        branch.settle()
        if not inconsistent(branch, None if focus is None else focus + branch.rows[start:], budget):
            return False
    return True


def _next_clause(system: System, focus: list[Poly] | None) -> Clause | None:
    """The youngest clause that has to do with what is in focus."""
    atoms: set[Atom] | None = None
    for clause in reversed(system.clauses):
        if clause.atom is None or focus is None:
            return clause
        if atoms is None:
            atoms = {a for r in connected(system.rows, focus) for m in r.terms for a in m}
        if clause.atom in atoms:
            return clause
    return None


def _remainders(system: System, focus: list[Poly] | None) -> Clause | None:
    """The cases of the remainder of a division by a small constant."""
    if focus is None or len(system.split) >= SPLITS:
        return None
    for atom in dict.fromkeys(a for r in connected(system.rows, focus) for m in r.terms for a in m):
        d = atom.args[1].constant if atom.kind == "floordiv" else None
        if d is None or not 1 < d <= REMAINDERS:
            continue
        rest = atom.args[0] - of_atom(atom).times(d)
        if atom not in system.split:
            system.split = (*system.split, atom)
            return Clause(tuple((rest.shift(-k), (-rest).shift(k)) for k in range(d)))
    return None
