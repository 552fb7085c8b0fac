"""Every construct of the language page, in its order and its words. Each stands in at least one positive program of this folder, on every backend; the few that no
program can show stand in a test that is named. `test_constructs.py` asserts both, and that a program claims to cover nothing that is not on the list."""
from __future__ import annotations

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.functions import FUNCTIONS

DTYPE_ROLES = (*(f"{role} {d}" for role in ("operand of", "result of", "cast to") for d in DTYPES), *(f"sat_{d.name}" for d in DTYPES.values() if d.is_int))
WRITTEN = tuple(f for f in FUNCTIONS if f not in ("floordiv", "mod", "ceildiv", "**", "fma"))
"""Functions under their names. The quotients and powers have sentences of their own below; `fma` is what `simplify` writes."""

CHECKLIST = {
    "Lexical": (
        "// comment", "/// doc comment", "statements without separators", "line ends", "UTF-8 with a byte order mark", "upper-case dimensions", "names like words and numbers", "numbers",
        "precedence", "mod, floordiv, ceildiv as calls", "strings and their escapes",
    ),
    "Types": (
        "integer dimension", "symbol", "a symbol that recurs", "? dimension", "expression dimension", "(B + 1) binds", "(G * 4) binds", "what does not divide is a shape error", "a symbol may be 0",
        "... first", "... in the middle", "... last", "... alone", "... for no dimension", "... the same for every operand", "[...] reduced", "rank 0", "layout", "NHWC to NCHW is a transposition",
        "without a layout any is accepted and handed on", "type variable", *DTYPE_ROLES,
    ),
    "Operators": (
        "number attribute", "default of an attribute", "attribute of every dtype", "dim attribute", "a dim attribute as a dimension", "attributes are expressions", "word attribute", "a word compared",
        "a word as a contract value", "dtype attribute", "a dtype attribute as a cast", "results are named and assigned", "[%a, %b] stacks", "[%a, %b] along C joins", "three parts", "a pack of u8",
        "constant parts of a pack", "a border on a packed operand", "where over dimensions", "where over attributes", "what cannot be decided is checked at the call", "dtypes constrains type variables",
        "memory: align, contiguity, cross_device", "contiguity = any", "inplace", "execution", "semantic: range, color, finite", "compile", "library", "downgrade", "a policy of an operator", "precision = mixed", "schedule", "graph", "graph in graph",
        "attributes handed on by name", "attributes of every kind through graphs", "kernel with a compute", "gradient",
    ),
    "compute: index notation": (
        "let", "an integer binds a constant position", "a constant position wins over a range", "pieces over ranges", "pieces of several axes", "a general definition beside constant positions",
        "s < 2*L+1 gives an extent", "a definition may be read before it is written", "a result read in a definition", "a local is defined wherever it is read", "a local of rank 0",
        "a local at an index that depends on data", "a border of a local",
        "sum", "prod", "mean", "any", "all", "argmax", "argmin", "nth", "argnth", "a negative rank", "[k < K]", "several ranges", "[j in a..b]", "a filter", "bounds from data", "a reduction within one",
        "a reduction over nothing", "empty = zero", "empty = nan",
        "a recurrence upwards", "a recurrence downwards", "two base cases", "several lags", "through locals", "mutual recurrences", "a wavefront lag", "a recurrence in a local",
        *(f"border = {m}" for m in ("replicate", "reflect", "reflect101", "wrap", "constant(v)", "none")), "borders are periodic without limit", "a border an axis", "a border of one operand",
        "padding = same", "padding = valid", "where facts prove indices", "parity from mod guards", "q * (X floordiv q) <= X", "p floordiv W < H from p < H*W", "min, max, mod keep an index inside",
        "select evaluates only the branch it takes", "and, or stop at the first decision", "a guard holds through a local", "data-dependent indices are checked", "data-dependent indices follow border",
        "reading an empty axis into something is an error at run time", *WRITTEN,
    ),
    "Arithmetic": (
        "narrow floats are computed in f32 and rounded once", "f64 stays f64", "narrow integers are read as i32", "sums of integers are i32, or i64", "indices and dimensions are i64", "i32 and i64 wrap",
        "an integer beside f32 is f32, beside f64 f64", "a literal takes the type of the other side", "** with an integer exponent is repeated multiplication", "** with a real exponent",
        "a store rounds to a narrower float", "f64 to f16 is one rounding", "a written cast rounds where it stands", "/ of integers is a real quotient", "floor semantics of integers", "floor semantics of floats",
        "integers by zero give 0", "denormals are kept", "NaN, infinities and signed zeros follow IEEE", "exact results stay exact", "accuracy = exact", "fast_math", "edges round to their dtype", "edges = free",
    ),
    "Pipelines": (
        "attributes of a pipeline", "node attributes are expressions", "param", "on a device", "as a label", "target", "after", "nodes in any order", "%b = %a", "several results of a node", "where of a pipeline",
        "dimensions unify along edges", "several pipelines",
    ),
    "Modules": ("import std.…", "@std.copy, cast, quantize, dequantize", "import a file", "imports are not handed on", "the file's own operators win"),
    "What passes write": ("plan", "place, at, keep", "epilogue", "reason", "loc", "generated names"),
    "Fine print": (
        "NaN last, ties by index", "a rank beyond the count is a reduction over nothing", "a rank counts what passes the filter", "argmax over one index gives the index",
        "argmax over several indices gives the flat position", "a filter does not renumber", "a literal beside nothing typed is f32 or i32", "pi, inf, nan take the type of the other side",
        "an f64 attribute is f64", "i32 beside i64 is i64, f32 beside f64 f64", "mean of integers is f32, summed in i64", "lowest and highest are those of i32",
        "? against anything is checked at the call", "@file_stem.name in full", "full names tell equal ones apart",
    ),
}

ELSEWHERE = {
    "a word compared with its default left out of a call on the command line": ("tests/unit/cli/test_run.py", "--set"),
    "files bring the dtype of the signature; bf16 and f8 as bit patterns": ("tests/unit/cli/test_files.py", "def test_bit_patterns_become_narrow_floats"),
    "safetensors carry narrow floats by name": ("tests/unit/cli/test_files.py", "def test_safetensors_name_narrow_floats"),
    "the search path of pipelink.yaml": ("tests/unit/runtime/test_project.py", "search"),
    "copies = allow": ("tests/unit/runtime/test_bind_numpy.py", "copies"),
    "cuda:N folds onto the devices present": ("tests/unit/runtime/test_ledger.py", "def test_devices_that_a_target_has_not"),
    "a short name that two imports offer is an error": ("tests/faulty/name-offered-twice.plir", "import"),
    "every stage can be read back": ("tests/cases/test_cases.py", "def test_every_stage_can_be_resumed_elsewhere"),
}
"""What a program alone does not show: where it is tested, and a word of that test."""
