"""Typed views of the contract sections of an operator: which keys there are, and what inference and backends ask of them."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelink_ir.ir.diagnostics import Note, Report, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Apply, Const, Define, Expr, FloatLit, IntLit, Items, Name, Operator, Read, Reduce, Scoped, Section, Setting, Text, Value
from pipelink_ir.ir.walk import walk

KEYS: dict[str, dict[str, str]] = {
    "memory": {
        "dtypes": "what a type variable may stand for", "align": "bytes; asked of operands, promised of results", "padding": "`same` or `valid`",
        "border": "what lies outside an operand", "contiguity": "`dense`, `rows` or `any`", "cross_device": "whether an operand may live on another device",
        "inplace": "the operand whose memory a result takes over",
        "varies": "operands and results whose float dtype a policy may change; unwritten: all, if there are `dtypes`, else none",
    },
    "execution": {
        "async": "whether the operator may run asynchronously", "max_streams": "at most so many nodes of it in flight",
        "event_sync": "whether it is followed by an event", "batch": "the dimension along which calls may be merged",
        "deterministic": "bit-equal from run to run",
    },
    "semantic": {"range": "[lo, hi] of the values", "color": "colour space", "finite": "no NaN, no infinity",
        "empty": "`zero` or `nan`: the value of a reduction over nothing"},
    "compile": {
        "arch": "CUDA architectures", "features": "device features", "library": "libraries that may take over", "toolchain": "`nvrtc`, `nvcc`, `hiprtc`",
        "fast_math": "approximate functions, reassociation, flushing",
        "accuracy": "`exact`: correctly rounded `/` and `sqrt`, no contraction; `tf32`: factors of products of f32 may be rounded to tf32; "
                    "`f8`: sums of products of f8 may have the bits that tensor cores have for them, of 128 terms at a time",
        "edges": "`free`: edges may keep more than their dtype", "block": "threads a block",
    },
    "schedule": {
        "target": "the target that the section is for: `cpu` or `cuda`", "derived": "locals that `derive` made to be stored; `[]`: nothing is to be derived",
        "place": "where a local lives: `inline`, `register`, `shared`, `row` or `buffer`", "at": "the loop at which a row is kept",
        "keep": "how many rows are kept", "beside": "the definition in whose kernel this one is computed, or `none`",
        "launch": "the definition whose launch a kernel shares, its threads split among them, or `none`",
        "map": "the kind of a definition's kernels: `grid`, `block(n)`, …", "kernel": "the library that computes it",
        "epilogue": "what a library's call takes in", "threads": "threads of a block of a definition's kernel",
        "vector": "neighbouring places that one access moves", "flight": "accesses that a thread has under way to each tensor",
    },
}
"""Every key of every contract section, with what it says."""

OF_ONE = frozenset(("place", "at", "keep", "beside", "launch", "map", "threads", "vector", "flight"))
"""Keys of `schedule` that speak of one definition."""

BORDERS = ("replicate", "reflect", "reflect101", "wrap", "constant", "none")
"""Modes of `border`; `constant` takes a value."""


@dataclass(frozen=True, slots=True)
class Found:
    """One setting that applies to a value, scoped settings before general ones."""

    setting: Setting
    scoped: bool


def sections(op: Operator, name: str) -> Iterator[Section]:
    return (s for s in op.sections if s.name == name)


def setting(op: Operator, section: str, key: str, tensor: str | None = None) -> Found | None:
    """The setting of `key` that speaks of `tensor` (its own first, then the general one), or the general one."""
    general: Found | None = None
    for s in sections(op, section):
        for entry in s.entries:
            if isinstance(entry, Scoped):
                if entry.tensor == tensor:
                    for inner in entry.settings:
                        if inner.key == key:
                            return Found(inner, scoped=True)
            elif entry.key == key:
                general = general or Found(entry, scoped=False)
    return general


def word(value: Value) -> str | None:
    """The word of a setting, None if it is something else."""
    return value.name if isinstance(value, Name | Const) else None


def words(value: Value) -> list[str]:
    """The words of a list or of a single word."""
    if isinstance(value, Items):
        return [w for w in map(word, value.items) if w is not None]
    one = word(value)
    return [] if one is None else [one]


def dtypes(op: Operator) -> Setting | None:
    found = setting(op, "memory", "dtypes")
    return found.setting if found else None


def empty(op: Operator) -> str | None:
    """`zero` or `nan` as the operator's answer to a reduction over nothing."""
    found = setting(op, "semantic", "empty")
    return word(found.setting.value) if found else None


def exact(op: Operator) -> bool:
    found = setting(op, "compile", "accuracy")
    return found is not None and word(found.setting.value) == "exact"


def exact_definitions(op: Operator) -> frozenset[str]:
    """The results and locals whose definitions ask for it, each for itself: `%y { accuracy = exact }`."""
    return frozenset(e.tensor for s in sections(op, "compile") for e in s.entries if isinstance(e, Scoped)
                     if any(s.key == "accuracy" and word(s.value) == "exact" for s in e.settings))


def tf32(op: Operator) -> bool:
    """Whether factors of products of f32 may be rounded to tf32."""
    found = setting(op, "compile", "accuracy")
    return found is not None and word(found.setting.value) == "tf32"


def short_sums(op: Operator) -> bool:
    """Whether sums of products of f8 may have the bits that tensor cores have for them: `accuracy = f8`, of the operator or of each definition with such sums
    (`%y { accuracy = f8 }`)."""
    found = setting(op, "compile", "accuracy")
    if found is not None and word(found.setting.value) == "f8":
        return True
    asked = {e.tensor for s in sections(op, "compile") for e in s.entries if isinstance(e, Scoped)
             if any(s.key == "accuracy" and word(s.value) == "f8" for s in e.settings)}
    return bool(asked) and {d.tensor for d in with_products(op)} <= asked


def with_products(op: Operator) -> list[Define]:
    """The definitions in which products are added up."""
    return [d for d in (op.compute.body if op.compute is not None else ()) if isinstance(d, Define)
            if any(isinstance(x, Reduce) and x.kind == "sum" and isinstance(x.body, Apply) and x.body.fn == "*" for x in walk(d.value))]


def fast_math(op: Operator) -> bool:
    found = setting(op, "compile", "fast_math")
    return found is not None and word(found.setting.value) == "true"


def check_keys(op: Operator, report: Report) -> None:
    """Report keys that no section has, keys written twice, values that are no word of theirs, and scopes that name nothing."""
    tensors = {p.name for p in (*op.operands, *op.results)}
    if op.compute is not None:
        tensors |= {d.tensor for d in op.compute.body if hasattr(d, "tensor")}
    seen: dict[tuple[str, str | None, str], Setting] = {}
    for section in op.sections:
        known = KEYS.get(section.name)
        for entry in section.entries:
            scope = entry.tensor if isinstance(entry, Scoped) else None
            if scope is not None and scope not in tensors:
                report.error("name", entry.span, f"'@{op.name}' has no operand, result or local '%{scope}'",
                             [Note(f"'@{op.name}' is declared here", op.signature)],
                             did_you_mean(scope, tensors, "%") or f"there are {', '.join(f'%{t}' for t in sorted(tensors))}")
            for s in entry.settings if isinstance(entry, Scoped) else (entry,):
                if known is not None and s.key not in known:
                    home = next((name for name, keys in KEYS.items() if s.key in keys), None)
                    report.error("attribute", s.key_span, f"'{section.name}' has no key '{s.key}'", (),
                                 (f"it belongs to '{home} {{ … }}'" if home else did_you_mean(s.key, known)) or f"its keys are {', '.join(known)}")
                    continue
                single = (section.name, s.key) == ("compile", "accuracy") and word(s.value) in ("exact", "f8") and scope not in {o.name for o in op.operands}
                whole = (section.name in ("execution", "compile") and not single) or (section.name == "schedule" and s.key not in OF_ONE)
                if scope is not None and (whole or s.key in ("dtypes", "empty", "varies")):
                    report.error("attribute", s.key_span, f"'{s.key}' speaks of the whole operator, not of '%{scope}'", (),
                                 f"write it outside of '%{scope} {{ … }}'")
                    continue
                if scope is None and section.name == "schedule" and s.key in OF_ONE:
                    report.error("attribute", s.key_span, f"'{s.key}' speaks of one definition", (), f"write '%y {{ {s.key} = … }}'")
                    continue
                first = seen.setdefault((_name_of(section), scope, s.key), s)
                if first is not s:
                    report.error("duplicate", s.key_span, f"'{s.key}' is set twice", [Note("first here", first.span)], "keep one of the two")
                elif known is not None:
                    _check_value(op, section.name, s, report)


def _name_of(s: Section) -> str:
    """What tells a section from another in which a key may stand again: sections of `schedule` for different targets do."""
    target = next((word(e.value) for e in s.entries if isinstance(e, Setting) and e.key == "target"), None) if s.name == "schedule" else None
    return f"{s.name} {target}" if target else s.name


_WORDS = {("schedule", "place"): ("inline", "register", "shared", "row", "buffer"), ("schedule", "target"): ("cpu", "cuda"),
          ("memory", "padding"): ("same", "valid"), ("memory", "contiguity"): ("dense", "rows", "any"), ("semantic", "empty"): ("zero", "nan"),
          ("compile", "accuracy"): ("exact", "tf32", "f8"), ("compile", "edges"): ("free",), ("compile", "fast_math"): ("true", "false"),
          ("memory", "cross_device"): ("true", "false"), ("execution", "async"): ("true", "false"), ("execution", "event_sync"): ("true", "false"),
          ("execution", "deterministic"): ("true", "false"), ("semantic", "finite"): ("true", "false")}
_FIELD_OF_KEY = {"padding": "padding", "contiguity": "contiguity", "cross_device": "cross_device", "finite": "finite", "border": "border"}


def _check_value(op: Operator, section: str, s: Setting, report: Report) -> None:
    expected = _WORDS.get((section, s.key))
    given = word(s.value)
    choice = next((a for a in op.attributes if a.type == "word" and a.name == given), None)
    if choice is not None and (expected is not None or s.key == "border"):
        # Whatever the caller chooses has to be a word of the key.
        known = expected or tuple(b for b in BORDERS if b != "constant")
        wrong = next((w for w in choice.words if w not in known), None)
        if wrong is not None:
            report.error(_FIELD_OF_KEY.get(s.key, "attribute"), s.span, f"'{choice.name}' may be '{wrong}', but '{s.key}' is one of {', '.join(known)}",
                         [Note("its words", choice.span)], f"take '{wrong}' out of the list of '{choice.name}'")
        return
    if expected is not None and given not in expected:
        what = f"is one of {', '.join(expected)}" if len(expected) > 1 else f"can only be '{expected[0]}'"
        report.error(_FIELD_OF_KEY.get(s.key, "attribute"), s.span, f"'{s.key}' {what}, not {describe(s.value)}", (),
                     (did_you_mean(given, expected) if given else None) or f"write '{s.key} = {expected[0]}'")
    if section == "schedule":
        _check_schedule(s, report)
    if s.key == "varies":
        tensors = {o.name for o in (*op.operands, *op.results)}
        if not isinstance(s.value, Items) or not all(isinstance(i, Read) and i.tensor in tensors for i in s.value.items):
            report.error("attribute", s.span, f"'varies' is a list of operands and results, not {describe(s.value)}", (),
                         "leave it out, or write 'varies = [%x, %y]'")
    if s.key == "dtypes" and isinstance(s.value, Items) and not s.value.items:
        report.error("dtype", s.span, "an empty list admits no dtype at all", (), "write 'dtypes = [f16, f32]', or leave the key out")
    if s.key == "dtypes":
        for item in s.value.items if isinstance(s.value, Items) else (s.value,):
            name = word(item)
            if name not in DTYPES:
                near = did_you_mean(name, DTYPES) if name else None
                report.error("dtype", item.span, f"{describe(item)} is no dtype", (), near or f"the dtypes are {', '.join(DTYPES)}")


def _check_schedule(s: Setting, report: Report) -> None:
    """The kinds of values that the keys of a schedule take."""
    v = s.value
    items = v.items if isinstance(v, Items) else (v,)
    bad: tuple[str, str] | None = None
    if s.key == "keep" and not (isinstance(v, IntLit) and v.value >= 1):
        bad = "a number of rows, at least 1", "write 'keep = 3'"
    elif s.key == "threads" and not (isinstance(v, IntLit) and 32 <= v.value <= 1024 and v.value % 32 == 0):
        bad = "a multiple of 32, from 32 to 1024", "write 'threads = 256'"
    elif s.key in ("vector", "flight") and not (isinstance(v, IntLit) and v.value in (1, 2, 4, 8)):
        bad = "1, 2, 4 or 8", f"write '{s.key} = 4'"
    elif s.key == "at" and not isinstance(v, Name | Read):
        bad = "an index, or the definition that is read by rows", "write 'at = h'"
    elif s.key in ("beside", "launch") and not isinstance(v, Read) and word(v) != "none":
        bad = "a definition, or 'none'", f"write '{s.key} = %y'"
    elif s.key == "derived" and not (isinstance(v, Items) and all(isinstance(i, Read) for i in items)):
        bad = "a list of locals", "write 'derived = []' to keep the definitions as they are"
    elif s.key == "map" and not all(isinstance(i, Name | Apply) for i in items):
        bad = "a kind of kernel, or a list of them", "write 'map = grid' or 'map = block(n)'"
    if bad is not None:
        report.error("schedule", s.span, f"'{s.key}' is {bad[0]}, not {describe(v)}", (), bad[1])


def border_of(op: Operator, tensor: str, rank: int, is_operand: bool, report: Report) -> tuple[tuple[str, Expr | None], ...]:
    """(mode, value of a constant) for each axis of a tensor. A general `border` speaks of operands, a scoped one of any tensor."""
    found = setting(op, "memory", "border", tensor)
    none: tuple[tuple[str, Expr | None], ...] = (("none", None),) * rank
    if found is None or (not found.scoped and not is_operand):
        return none
    value = found.setting.value
    if isinstance(value, Items):
        if len(value.items) != rank:
            if found.scoped or sum(len(o.type.dims) == len(value.items) for o in op.operands) == 0:
                report.error("border", value.span, f"{len(value.items)} borders for '%{tensor}', which has {rank} axes",
                             [Note(f"'@{op.name}' is declared here", op.signature)], "write one border, or one an axis")
            return none
        return tuple(_border(item, report) for item in value.items)
    return (_border(value, report),) * rank


_BORDERS_ELSEWHERE = {"zeros": "constant(0)", "zero": "constant(0)", "edge": "replicate", "nearest": "replicate", "clamp": "replicate",
                      "clamp_to_edge": "replicate", "symmetric": "reflect", "mirror": "reflect101", "circular": "wrap", "periodic": "wrap", "repeat": "wrap"}
_BORDER_HELP = "borders are replicate, reflect, reflect101, wrap, constant(v), none"


def _border(value: Value, report: Report) -> tuple[str, Expr | None]:
    if isinstance(value, Apply) and value.fn == "constant" and len(value.args) == 1:
        return "constant", value.args[0]
    name = word(value)
    if name == "constant" or (isinstance(value, Apply) and value.fn == "constant"):
        report.error("border", value.span, "'constant' does not say which constant", (), "write 'border = constant(0)'")
    elif name not in BORDERS:
        meant = _BORDERS_ELSEWHERE.get(name or "")
        near = f"'{meant}' does that here" if meant else did_you_mean(name, BORDERS) if name else None
        report.error("border", value.span, f"there is no border {describe(value)}", (),
                     near or f"write '{value.value}' without quotes" if isinstance(value, Text) and value.value in BORDERS else near or _BORDER_HELP)
    else:
        return name, None
    return "none", None


def describe(value: Value) -> str:
    """A value as messages show it."""
    if isinstance(value, Text):
        return f'"{value.value}"'
    if isinstance(value, Items):
        return "[" + ", ".join(map(describe, value.items)) + "]"
    if isinstance(value, IntLit | FloatLit):
        return f"{value.value:g}" if isinstance(value, FloatLit) else str(value.value)
    if isinstance(value, Read):
        return f"%{value.tensor}"
    if isinstance(value, Apply) and value.fn.isidentifier():
        return f"{value.fn}(…)"
    return word(value) or "…"
