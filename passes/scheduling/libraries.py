"""Who computes an operator whose compile contract lists a library: the library or the compiler's own code, decided, written down and told.

`library = [cublaslt, generated]` is in order, best first; `schedule { kernel = … }` overrides that. The decision is `kernel` in the section of the target, with
the result in `epilogue` where more than a product is taken in, so that a program that was dumped is run as it was planned.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Name, Operator, Read, Section, Setting
from pipelink_ir.ir.targets import CALLED, Arch
from pipelink_ir.passes.infer.generic import name_dynamic
from pipelink_ir.passes.infer.operator import keep_typed, typed_operator
from pipelink_ir.passes.infer.text import written
from pipelink_ir.passes.scheduling.asked import target_of, with_entries
from pipelink_ir.passes.scheduling.library_products import CUBLASLT, LibraryProduct, library_product

GENERATED = "generated"
INSTALL = "pip install 'pipelink-ir[libraries]'"


@dataclass(frozen=True, slots=True)
class Choice:
    """Who computes an operator: the library, or the compiler's own code for a reason. `refused`: the contract lists nobody else."""

    product: LibraryProduct | None
    why: str
    """As the ledger has it."""
    refused: bool = False


def listed(op: Operator) -> list[str]:
    """What a compile contract lists, best first."""
    found = contracts.setting(op, "compile", "library")
    return contracts.words(found.setting.value) if found is not None else []


def wished(op: Operator) -> Setting | None:
    """`kernel = …` in a schedule for a GPU."""
    found = list(contracts.sections(op, "schedule"))
    for s in [*(s for s in found if target_of(s) == "cuda"), *(s for s in found if target_of(s) is None)]:
        for e in s.entries:
            if isinstance(e, Setting) and e.key == "kernel":
                return e
    return None


def choose(op: Operator, arch: Arch | None = None, missing: tuple[str, ...] = ()) -> Choice | None:
    """Who computes an operator; None where no library has anything to do with it. `missing` are libraries that are not installed here."""
    names, wish = listed(op), wished(op)
    asked = contracts.word(wish.value) if wish is not None else None
    if CUBLASLT not in names:
        return None
    first = next(n for n in names if n in (*CALLED, GENERATED))
    if (asked or first) != CUBLASLT:
        return Choice(None, f"the compiler's own code computes it, {'as its schedule says' if asked else 'which stands before cuBLASLt'}")
    why: str | LibraryProduct = _product(op, arch)
    if isinstance(why, LibraryProduct) and CUBLASLT in missing:
        why = f"nvmath-python, through which it is called, is not installed: {INSTALL}"
    if isinstance(why, LibraryProduct):
        taken = f", with {' and '.join(why.epilogue)} in its epilogue" if why.epilogue else ""
        sums = {"f64": "f64"}.get(why.dtype, "f32")
        factors = "f32 rounded to tf32" if why.tf32 and why.dtype == "f32" else why.dtype
        by = "its schedule asks for it" if asked and first != CUBLASLT else "the contract lists it first"
        return Choice(why, f"cuBLASLt computes '%{why.result}'{taken}: {by}, products of {factors} are added up in {sums}")
    return Choice(None, f"cuBLASLt does not compute it: {why}", GENERATED not in names)


def told(op: Operator) -> Choice | None:
    """The choice that was made for an operator, if a library computes it."""
    return choose(op) if product_of(op) is not None else None


def _product(op: Operator, arch: Arch | None) -> LibraryProduct | str:
    params, names = name_dynamic(op.params, set())
    return library_product(typed_operator(replace(op, params=params) if names else op), arch)


def product_of(op: Operator) -> LibraryProduct | None:
    """The product that a library computes, as it was decided; None where the compiler's own code does."""
    wish = wished(op)
    if wish is None or contracts.word(wish.value) != CUBLASLT or CUBLASLT not in listed(op):
        return None
    found = _product(op, None)
    return found if isinstance(found, LibraryProduct) else None


def decided(op: Operator, choice: Choice) -> Operator:
    """The operator with the decision written down."""
    entries = [Setting("kernel", Name(CUBLASLT if choice.product is not None else GENERATED))]
    if choice.product is not None and choice.product.epilogue:
        entries.append(Setting("epilogue", Read(choice.product.result)))
    if _written(op) == entries:
        return op
    new = with_entries(_without(op), "cuda", entries)
    # A schedule changes no type.
    keep_typed(new, replace(typed_operator(op), op=new))
    return new


_KEYS = ("kernel", "epilogue")


def _written(op: Operator) -> list[Setting]:
    own = next((s for s in contracts.sections(op, "schedule") if target_of(s) == "cuda"), None)
    return [e for e in own.entries if isinstance(e, Setting) and e.key in _KEYS] if own is not None else []


def _without(op: Operator) -> Operator:
    """The operator without an earlier decision."""
    def kept(s: Section) -> Section:
        if s.name != "schedule" or target_of(s) != "cuda":
            return s
        return replace(s, entries=tuple(e for e in s.entries if not (isinstance(e, Setting) and e.key in _KEYS)))

    return replace(op, sections=tuple(map(kept, op.sections))) if _written(op) else op


def check(op: Operator, choice: Choice | None, report: Report) -> None:
    """Errors: a library alone that does not compute an operator, a schedule that asks for one that the contract does not list."""
    found, wish = contracts.setting(op, "compile", "library"), wished(op)
    if choice is not None and choice.refused and found is not None:
        report.error("library", found.setting.span, f"'@{written(op.name)}' runs on {', '.join(listed(op))} alone, and {choice.why}", (),
                     "add 'generated' to the list, the compiler's own code")
    word = contracts.word(wish.value) if wish is not None else None
    if wish is not None and word not in (GENERATED, None) and word not in listed(op):
        report.error("schedule", wish.span, f"'kernel = {word}', and the compile contract of '@{written(op.name)}' does not list it", (),
                     f"write 'compile {{ library = [{word}, generated] }}', or leave the line out")
