"""What a `downgrade` clause says, without the operator: words that there are, and lines that contradict each other. The project file's policies too."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipelink_ir.ir import contracts
from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Items, Setting, Value
from pipelink_ir.ir.targets import LIBRARIES, Arch, lacks
from pipelink_ir.passes.contracts.values import number, show_value
from pipelink_ir.passes.precision.policy import CODED, CODES, GRANULARITIES, KEYS, RANGES, SCHEMES, WEIGHTS, granularity_of

ALL_KEYS = ("dtype", "precision", *(k for k in KEYS if k != "dtype"))
THREADS = 1024
"""Threads that a block can have."""

TILE = 1 << 16
"""Most values of a tile: those that the threads of a block hold in registers, 64 each, and that its shared memory holds of both factors."""

TENSOR_CORES = {"f8e4m3": 89, "f8e5m2": 89, "bf16": 80}
"""Dtypes whose products begin with an architecture; devices before it convert, to the same result."""

_BITS = {"i4": 4, **{name: d.bits for name, d in DTYPES.items()}}
_HALF_STEP = {
    "i8": (1 / 254, "1/254"), "affine": (1 / 510, "1/510"), "u8": (1 / 510, "1/510"), "f8e4m3": (2**-5, "1/32"), "f8e5m2": (2**-4, "1/16"),
    "bf16": (2**-9, "1/512"), "f16": (2**-12, "1/4096"),
}
"""Half of what lies between neighbouring values of a dtype, at its finest, as a part of the largest value."""


@dataclass(frozen=True, slots=True)
class Clause:
    """The settings of one clause that were good words, by key."""

    of: Mapping[str, Setting]
    labels: tuple[Setting, ...]

    def word(self, key: str) -> str | None:
        return contracts.word(self.of[key].value) if key in self.of else None

    @property
    def dtypes(self) -> list[Setting]:
        """The settings that name what is lowered to."""
        return [*([self.of["dtype"]] if "dtype" in self.of else []), *self.labels]


def check_clause(settings: Sequence[Setting], arch: Arch, report: Report, names: Collection[str] = ()) -> Clause:
    """Report what is wrong in a clause by itself, and hand back what of it can be judged further. `names` are attributes, which a call gives values."""
    seen: dict[str, Setting] = {}
    faulty: set[str] = set()
    before = len(report.diagnostics)
    for s in settings:
        first = seen.setdefault(s.key, s)
        if first is not s:
            report.error("duplicate", s.key_span, f"'{s.key}' is set twice", [Note("first here", first.span)], "keep one")
        elif not _check_word(s, arch, report, names):
            faulty.add(s.key)
    clause = Clause({k: s for k, s in seen.items() if k in ALL_KEYS and k not in faulty}, tuple(s for k, s in seen.items() if k not in ALL_KEYS))
    if not any(d.severity == "error" for d in report.diagnostics[before:]):
        _check_together(clause, arch, report)
    return clause


def _check_word(s: Setting, arch: Arch, report: Report, names: Collection[str]) -> bool:
    """Whether a setting has a value of its key."""
    before = len(report.diagnostics)
    match s.key:
        case "precision":
            if contracts.word(s.value) != "mixed":
                report.error("downgrade", s.span, "'precision' is 'mixed'", (), "write 'precision = mixed' and a dtype for each label")
        case "budget":
            _check_budget(s, report)
        case "library":
            check_library(s, report, arch)
        case "block":
            check_block(s, names, report, arch)
        case "granularity":
            _check_granularity(s, report)
        case "weights":
            _one_of(s, WEIGHTS, report)
        case "scheme":
            _one_of(s, SCHEMES, report)
        case "ranges":
            _one_of(s, RANGES, report)
        case "force":
            _one_of(s, ("true", "false"), report)
    return len(report.diagnostics) == before


def _one_of(s: Setting, words: Collection[str], report: Report) -> None:
    given = contracts.word(s.value)
    if given not in words:
        report.error("downgrade", s.span, f"'{s.key}' is one of {', '.join(words)}, not {contracts.describe(s.value)}", (),
                     (did_you_mean(given, words) if given else None) or f"write '{s.key} = {next(iter(words))}'")


def check_dtype_word(s: Setting, report: Report) -> bool:
    """Whether a dtype is one that operators can be lowered to."""
    from pipelink_ir.passes.infer.foreign import dtype_help
    name = contracts.word(s.value) or ""
    if name == "i4":
        report.error("downgrade", s.span, "i4 is for weights: values that are computed have too few codes in it", (), "write 'dtype = i8, weights = i4'")
    elif name not in DTYPES:
        report.error("downgrade", s.span, f"'{contracts.describe(s.value)}' is no dtype", (), dtype_help(name) or f"dtypes are {', '.join(DTYPES)}")
    elif not DTYPES[name].is_float and name not in CODES:
        report.error("downgrade", s.span, f"values are quantised to i8 or u8, not to {name}", (),
                     "write 'dtype = i8'" if name != "bool" else "write 'dtype = i8'; a bool holds no number")
    else:
        return True
    return False


def _check_granularity(s: Setting, report: Report) -> None:
    kind, size = granularity_of(s.value)
    named = contracts.word(s.value) == "block" or (isinstance(s.value, Apply) and s.value.fn == "block")
    if kind == "block" and size is not None and size < 1:
        report.error("downgrade", s.span, f"a block of {size} weights has no weight", (), "write 'granularity = block(32)'")
    elif named and (kind is None or size is None):
        report.error("downgrade", s.span, "'granularity = block(…)' says how many weights share a scale, a number that is known when it is compiled", (),
                     "write 'granularity = block(32)'")
    elif kind is None:
        given = contracts.word(s.value)
        report.error("downgrade", s.span, f"'granularity' is tensor, channel or block(N), not {contracts.describe(s.value)}", (),
                     (did_you_mean(given, GRANULARITIES) if given else None) or "write 'granularity = channel'")


def _check_budget(s: Setting, report: Report) -> None:
    n = number(s.value)
    if n is None or not n > 0:
        report.error("budget", s.value.span, f"a budget is the largest relative error, a positive number, not {show_value(s.value)}", (),
                     "write 'budget = 1e-2'")
    elif n >= 1:
        report.warning("budget", s.value.span, f"a budget of {show_value(s.value)} lets the error be as large as the result itself", (),
                       f"write 'budget = {n / 100:g}' for {n:g} %" if n < float("inf") else "leave 'budget' out")


def check_library(s: Setting, report: Report, arch: Arch | None = None) -> None:
    """Libraries that exist, and that the device of a policy has."""
    for item in s.value.items if isinstance(s.value, Items) else (s.value,):
        name = contracts.word(item)
        if name not in LIBRARIES:
            report.error("library", item.span, f"there is no library '{name or contracts.describe(item)}'", (),
                         (did_you_mean(name, LIBRARIES) if name else None) or f"libraries are {', '.join(LIBRARIES)}")
            continue
        missing = lacks(arch, name) if arch is not None else None
        if missing is not None:
            report.error("library", item.span, missing, (), "write 'library = generated', the compiler's own code")


def check_block(s: Setting, known: Collection[str], report: Report, arch: Arch | None = None) -> None:
    """One number: threads of a block. Two: rows and columns of the tile of a result that a block makes. Three: and how many terms of a sum a step takes.
    `known` are names of attributes, whose values come with the call."""
    items: tuple[Value, ...] = s.value.items if isinstance(s.value, Items) else (s.value,)
    sizes = [number(i) for i in items]
    good = [(n is not None and n >= 1 and n == int(n)) or contracts.word(i) in known for n, i in zip(sizes, items, strict=True)]
    if not 1 <= len(sizes) <= 3 or not all(good):
        report.error("attribute", s.span, f"'block' is a number of threads, or up to three sizes of a tile, not {contracts.describe(s.value)}", (),
                     "write 'block = 256', or 'block = [64, 64, 32]': rows, columns and depth")
        return
    given = [int(n) for n in sizes if n is not None]
    if arch is not None and arch.kind != "cuda":
        report.error("downgrade", s.span, f"{arch} has no blocks of threads", (), "leave 'block' out")
    elif len(sizes) == 1 and given and given[0] > THREADS:
        report.error("attribute", s.span, f"a block has at most {THREADS} threads, not {given[0]}", (), f"write 'block = {THREADS}' or less")
    elif len(given) == len(sizes) > 1:
        rows, columns, depth = (*given, 1)[:3]
        if rows * columns > TILE:
            report.error("attribute", s.span, f"a tile of {rows} x {columns} values is more than a block holds, {TILE:,}", (),
                         "write 'block = [128, 128]' or less")
        elif (rows + columns) * depth > TILE:
            report.error("attribute", s.span, f"a step of {depth} terms takes {(rows + columns) * depth:,} values of both factors, more than a block holds, "
                                              f"{TILE:,}", (), "write a smaller depth, 'block = [128, 128, 32]'")


# ------------------------------------------------------------------------------------------------------------------- together


def _check_together(clause: Clause, arch: Arch, report: Report) -> None:
    """Settings of one clause that say different things, or that say something of nothing."""
    of, dtype, weights, scheme = clause.of, clause.word("dtype"), clause.word("weights"), clause.word("scheme")
    if dtype is not None and dtype not in DTYPES:
        return
    targets = [contracts.word(s.value) for s in clause.dtypes]
    if "precision" in of and "dtype" in of:
        report.error("downgrade", of["dtype"].span, "'dtype' speaks of every node of the graph, 'precision = mixed' of those with a label alone",
                     [Note("it says so here", of["precision"].span)], "keep one of the two")
        return
    if not targets and weights is None:
        nothing = next((of[k] for k in ("scheme", "granularity", "ranges", "force") if k in of), None)
        if nothing is not None:
            report.error("downgrade", nothing.span, f"'{nothing.key}' says how values are lowered, and the clause lowers nothing", (),
                         f"add 'dtype = i8', or leave '{nothing.key}' out")
        return
    if not any(t in CODED for t in targets):
        _check_uncoded(clause, dtype, weights, report)
    if scheme == "affine" and any(t in CODES and not t.endswith("8") for t in targets):
        report.error("downgrade", of["scheme"].span, "a zero point is an integer code, and f8 has none", (), "write 'scheme = symmetric', or 'dtype = i8'")
    if scheme == "plain" and any(t in ("i8", "u8") for t in targets):
        report.error("downgrade", of["scheme"].span, "'plain' rounds to a float as it is; integer codes need a scale", (),
                     "write 'scheme = symmetric', or 'dtype = f8e4m3'")
    if scheme == "plain" and "granularity" in of and weights not in CODED:
        report.error("downgrade", of["granularity"].span, "'granularity' says what shares a scale, and 'scheme = plain' has none",
                     [Note("it says so here", of["scheme"].span)], "leave 'granularity' out")
    if scheme == "plain" and "ranges" in of:
        report.error("downgrade", of["ranges"].span, "'ranges' says where scales come from, and 'scheme = plain' has none",
                     [Note("it says so here", of["scheme"].span)], "leave 'ranges' out")
    _check_weights(clause, weights, report)
    for s in clause.dtypes:
        since = TENSOR_CORES.get(contracts.word(s.value) or "", 0)
        if arch.kind == "cuda" and arch.sm < since:
            report.warning("downgrade", s.span, f"{contracts.word(s.value)} begins with sm_{since}: {arch} converts each value and multiplies in f32", (),
                           "write i8 or f16, which it has instructions for; 'weights' may be of any dtype, since they are read only")


def _check_uncoded(clause: Clause, dtype: str | None, weights: str | None, report: Report) -> None:
    """No activation becomes a code."""
    of = clause.of
    what = f"to {dtype} nothing is quantised" if dtype is not None else "no activation is quantised" if not clause.labels else "no label is quantised"
    if "scheme" in of:
        report.error("downgrade", of["scheme"].span, f"'scheme' says how activations are coded, and {what}", (), "leave 'scheme' out, or write 'dtype = i8'")
    if "ranges" in of:
        report.error("downgrade", of["ranges"].span, f"'ranges' says where the scales of activations come from, and {what}", (),
                     "leave 'ranges' out, or write 'dtype = i8'")
    if "granularity" in of and weights not in CODED:
        report.error("downgrade", of["granularity"].span, f"'granularity' says what of the weights shares a scale, and {what}", (),
                     "leave 'granularity' out, or write 'weights = i8'")


def _check_weights(clause: Clause, weights: str | None, report: Report) -> None:
    if weights is None:
        return
    at = clause.of["weights"].span
    for s in clause.dtypes:
        name = contracts.word(s.value) or ""
        if name not in DTYPES:
            continue
        note = [Note(f"{name} is asked for here", s.span)]
        if _BITS[weights] > _BITS[name]:
            report.error("downgrade", at, f"weights of {weights} are wider than {name}, which the operator computes with", note,
                         f"leave 'weights' out, or write 'weights = {'i4' if name in ('i8', 'u8') else 'i8'}'")
            return
        if weights not in CODED and weights != name:
            report.error("downgrade", at, f"weights of {weights} beside {name} have no common product", note,
                         f"leave 'weights' out, or write 'weights = {name}'")
            return
        if name in CODES and weights[0] != name[0] and {weights[0], name[0]} != {"i", "u"}:
            report.error("downgrade", at, f"codes of {weights} and {name} have no common product", note,
                         f"write 'weights = {'i8' if name in ('i8', 'u8') else name}', or leave 'weights' out")
            return
    kind, size = granularity_of(clause.of["granularity"].value) if "granularity" in clause.of else (None, None)
    if weights == "i4" and kind == "block" and size is not None and size % 2:
        report.error("downgrade", clause.of["granularity"].span, f"two weights of i4 lie in a byte, and a block of {size} ends within one", (),
                     f"write 'granularity = block({size + 1})'")


def check_reach(clause: Clause, lowered: Sequence[Setting], report: Report) -> None:
    """A budget below half a step of what a result is lowered to: values that are rounded to it once are further off."""
    budget = number(clause.of["budget"].value) if "budget" in clause.of else None
    if budget is None:
        return
    affine = clause.word("scheme") == "affine"
    for s in lowered:
        name = contracts.word(s.value) or ""
        least, text = _HALF_STEP.get("affine" if affine and name == "i8" else name, (0.0, ""))
        if budget < least:
            finer = "f16" if budget >= 2**-12 and name != "f16" else "f32"
            report.error("budget", clause.of["budget"].value.span,
                         f"a budget of {show_value(clause.of['budget'].value)} cannot be met: half a step of {name} is {text} of the largest value",
                         [Note(f"{name} is asked for here", s.span)], f"write 'budget = {_round_up(least)}' or more, or lower to {finer}")
            return


def _round_up(x: float) -> str:
    """The next number of one digit, `4e-3`."""
    from math import ceil, floor, log10
    power = floor(log10(x))
    return f"{ceil(x / 10**power)}e{power}"
