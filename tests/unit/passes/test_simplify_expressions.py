"""Rewrites inside operators: what is written after simplification, and that what is not exactly equal is left alone."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelink_ir.backends.reference.executable import load
from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.simplify.nodes import holds
from pipelink_ir.passes.simplify.operators import simplify_operator

HEAD = """op @f.1(%x: tensor<NxMxf32>, %d: tensor<NxMxf64>, %i: tensor<NxMxi32>, %l: tensor<NxMxi64>, %h: tensor<NxMxf16>, %u: tensor<NxMxu8>,
              %b: tensor<NxMxbool>, s: f32, k: i32) -> (%y: tensor<NxMxTYPE>) { MORE compute { BODY } }"""


def operator(body: str, dtype: str = "f32", more: str = "") -> Operator:
    text = HEAD.replace("TYPE", dtype).replace("MORE", more).replace("BODY", body)
    (found,) = parse(text.encode(), "test.plir").operators
    return found


def check(before: str, after: str, dtype: str = "f32", more: str = "", more_after: str | None = None) -> None:
    old = operator(before, dtype, more)
    new = simplify_operator(old)
    assert new == operator(after, dtype, more if more_after is None else more_after)
    assert simplify_operator(new) is new
    if before == after:
        assert new is old


REWRITES = [
    # arguments that do nothing
    ("%x[n, m] * 1", "%x[n, m]", "f32"), ("1.0 * %x[n, m]", "%x[n, m]", "f32"), ("%x[n, m] / 1", "%x[n, m]", "f32"), ("%x[n, m] - 0", "%x[n, m]", "f32"),
    ("%x[n, m] - 0.0", "%x[n, m]", "f32"), ("%d[n, m] * 1.0", "%d[n, m]", "f64"), ("%i[n, m] + 0", "%i[n, m]", "i32"), ("0 + %i[n, m]", "%i[n, m]", "i32"),
    ("%i[n, m] * 1 - 0", "%i[n, m]", "i32"), ("%i[n, m] floordiv 1", "%i[n, m]", "i32"), ("-(-%x[n, m])", "%x[n, m]", "f32"),
    ("not (not %b[n, m])", "%b[n, m]", "bool"), ("%x[n - 0, m + 0]", "%x[n, m]", "f32"),
    # selection and logic
    ("select(true, %x[n, m], 1)", "%x[n, m]", "f32"), ("select(1 > 2, 1, %x[n, m])", "%x[n, m]", "f32"), ("true and %b[n, m]", "%b[n, m]", "bool"),
    ("%b[n, m] and true", "%b[n, m]", "bool"), ("false and %b[n, m]", "false", "bool"), ("true or %b[n, m]", "true", "bool"),
    ("%b[n, m] or false", "%b[n, m]", "bool"), ("n > 3 and false", "false", "bool"), ("n > 3 or true", "true", "bool"),
    ("select(n > 3, %x[n, m], %x[n, m])", "%x[n, m]", "f32"),
    # constants, in the dtype that the program computes in
    ("%x[n, m] + (1 + 2)", "%x[n, m] + 3.0", "f32"), ("%x[n, m] * (1 / 3)", "%x[n, m] * 0.33333334", "f32"),
    ("%d[n, m] * (1 / 3)", "%d[n, m] * 0.3333333333333333", "f64"),
    ("%x[n, m] + (0.1 * 3)", "%x[n, m] + 0.3", "f32"), ("%x[n, m] * sqrt(2.0)", "%x[n, m] * 1.4142135", "f32"),
    ("%i[n, m] + (2147483647 + 1)", "%i[n, m] + -2147483648", "i32"), ("%i[n, m] + 65536 * 65536", "%i[n, m]", "i32"),
    ("%i[n, m] + u8(3 - 4)", "%i[n, m] + 255", "i32"), ("%i[n, m] + u8(255 + 1)", "%i[n, m]", "i32"), ("%i[n, m] + (-7 floordiv 2)", "%i[n, m] + -4", "i32"),
    ("%i[n, m] + (-7 mod 2)", "%i[n, m] + 1", "i32"), ("%i[n, m] + (-2147483648 floordiv -1)", "%i[n, m] + -2147483648", "i32"),
    ("%i[n, m] + (5 mod (1 - 1))", "%i[n, m]", "i32"), ("%i[n, m] + i32(3.7)", "%i[n, m] + 3", "i32"), ("%i[n, m] + sat_u8(300)", "%i[n, m] + 255", "i32"),
    ("%x[n, m] + f16(0.1)", "%x[n, m] + 0.099975586", "f32"), ("%x[n, m] * (1 / inf)", "%x[n, m] * 0.0", "f32"),
    ("%x[n, m] * (-1 / inf)", "%x[n, m] * -0.0", "f32"), ("%x[n, m] + 1 / 0", "%x[n, m] + inf", "f32"), ("%x[n, m] + 0 / 0", "%x[n, m] + nan", "f32"),
    ("max(%x[n, m], max(nan, 1))", "max(%x[n, m], nan)", "f32"), ("select(%x[n, m] > 2 * 3, 1, 0)", "select(%x[n, m] > 6.0, 1, 0)", "f32"),
    # casts
    ("i32(%i[n, m])", "%i[n, m]", "i32"), ("i32(i32(%x[n, m]))", "i32(%x[n, m])", "i32"), ("f16(f16(%x[n, m]))", "f16(%x[n, m])", "f16"),
    ("f16(%h[n, m])", "%h[n, m]", "f16"), ("f32(%h[n, m]) * f32(%u[n, m])", "%h[n, m] * f32(%u[n, m])", "f32"), ("f32(%x[n, m])", "%x[n, m]", "f32"), ("bool(%b[n, m])", "%b[n, m]", "bool"),
    # reductions over one
    ("prod[j < 1](%x[n, j])", "%x[n, 0]", "f32"), ("max[j in 2..3](%x[n, j])", "%x[n, 2]", "f32"), ("sum[j < 1](%i[n, j])", "%i[n, 0]", "i32"),
    ("sum[j < 1, q < M](%x[j, q])", "sum[q < M](%x[0, q])", "f32"),
    ("sum[q < M, j < 1 where %b[j, q]](%x[j, q])", "sum[q < M where %b[0, q]](%x[0, q])", "f32"),
    ("any[j in M - 1..M](%b[n, j])", "%b[n, M - 1]", "bool"), ("mean[j < 1, q < M](%x[j, q])", "mean[q < M](%x[0, q])", "f32"),
    ("sum[j < (M + 2 - M)](%i[n, j])", "sum[j < 2](%i[n, j])", "i32"),
]


@pytest.mark.parametrize(("before", "after", "dtype"), REWRITES)
def test_rewrites(before: str, after: str, dtype: str) -> None:
    check(f"%y[n, m] = {before}", f"%y[n, m] = {after}", dtype)


KEPT = [
    # not equal: signed zeros, infinities, NaN
    ("%x[n, m] + 0", "f32"), ("0 + %x[n, m]", "f32"), ("%x[n, m] - -0.0", "f32"), ("0 - %x[n, m]", "f32"), ("%x[n, m] * 0", "f32"),
    ("%x[n, m] - %x[n, m]", "f32"),
    ("%x[n, m] / %x[n, m]", "f32"), ("%x[n, m] * -1", "f32"), ("max(%x[n, m], -inf)", "f32"), ("sum[j < 1](%x[n, j])", "f32"), ("mean[j < 1](%x[n, j])", "f32"),
    # a cast that rounds, or keeps a product and a sum apart
    ("f32(f16(%x[n, m]))", "f32"), ("f32(%x[n, m] * s) + 1", "f32"), ("f16(%x[n, m])", "f16"), ("u8(i32(%x[n, m]))", "u8"), ("u8(sat_u8(%i[n, m]))", "u8"),
    # what may fail, or is only known when it runs
    ("%b[%i[n, m], m] and false", "bool"), ("%x[n, m] * s", "f32"), ("select(k > 0, 1, 2)", "f32"), ("max[j < 1 where %b[n, j]](%x[n, j])", "f32"),
    ("i32(n) + argmax[j < 1](%x[n, j])", "i32"),
    # functions that backends compute to within some ulp, and exponents, whose form fixes the order of multiplication
    ("%x[n, m] * exp(1.0)", "f32"), ("%x[n, m] ** (2 + 2)", "f32"), ("%x[n, m] ** 1", "f32"), ("%x[n, m] * 2.0 ** 0.5", "f32"),
    # nothing to do
    ("%x[n, m] * f32(2.5)", "f32"), ("f64(0.1) * %d[n, m]", "f64"), ("%x[n, m] + 1 + 2", "f32"), ("%x[n, m] * pi", "f32"),
]


@pytest.mark.parametrize(("body", "dtype"), KEPT)
def test_what_is_not_exactly_equal_stays(body: str, dtype: str) -> None:
    check(f"%y[n, m] = {body}", f"%y[n, m] = {body}", dtype)


MODULE = """pipeline @p(%x: tensor<NxMxf32>, %d: tensor<NxMxf64>, %i: tensor<NxMxi32>, %l: tensor<NxMxi64>, %h: tensor<NxMxf16>, %u: tensor<NxMxu8>,
    %b: tensor<NxMxbool>) -> (RESULTS) { NODES }"""

FLOATS = [0.0, -0.0, 1.0, -1.0, 1.5, 0.1, np.nan, np.inf, -np.inf, 1e-45, -1.1754944e-38, 3.4e38, 6.1e-5, 65504.0, 7.25, 2.5]
INTS = [0, 1, -1, 2147483647, -2147483648, 255, 256, -7, 8, 100, -100, 3, 5, 77, 2, -2]


def arrays() -> dict[str, Any]:
    rows = [np.roll(np.array(FLOATS), k) for k in range(3)]
    ints = [np.roll(np.array(INTS), k) for k in range(3)]
    with np.errstate(all="ignore"):
        return {"x": np.array(rows, np.float32), "d": np.array(rows, np.float64), "h": np.array(rows).astype(np.float16), "i": np.array(ints, np.int32),
                "l": np.array(ints, np.int64) * 3, "u": np.array(ints).astype(np.uint8), "b": np.array(ints) > 2}


def test_rewrites_keep_every_bit() -> None:
    """The reference runs the operators as written and simplified on zeros of both signs, infinities, NaN, subnormals and limits of integers."""
    operators, nodes, results = [], [], []
    bodies = [(before, dtype) for before, _, dtype in REWRITES] + [("%x[n, m] ** (1 / f32(2.2))", "f32"), ("%d[n, m] * (f32(1) / f32(3))", "f64")]
    for k, (before, dtype) in enumerate(bodies):
        text = HEAD.replace("TYPE", dtype).replace("MORE", "where N >= 3, M >= 4").replace("BODY", f"%y[n, m] = {before}").replace("@f.1", f"@f{k}")
        operators.append(text.replace(", s: f32, k: i32", ""))
        nodes.append(f"%y{k} = @f{k}(%x, %d, %i, %l, %h, %u, %b)")
        results.append(f"%y{k}: tensor<NxMx{dtype}>")
    text = "\n".join(operators) + "\n" + MODULE.replace("RESULTS", ", ".join(results)).replace("NODES", "\n".join(nodes))
    written = run_passes(parse(text.encode(), "t.plir"), parse_passes("frontend"), Report())
    simplified = run_passes(written, parse_passes("simplify"), Report())
    changed = sum(a.compute != b.compute for a, b in zip(written.operators, simplified.operators, strict=True))
    assert changed == len(bodies)
    one, two = load(written, "p")(arrays()), load(simplified, "p")(arrays())
    for k, (before, _) in enumerate(bodies):
        a, b = one[f"y{k}"], two[f"y{k}"]
        assert a.dtype == b.dtype
        same = (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | ((a != a) & (b != b))
        assert same.all(), before


def test_constants_with_names() -> None:
    check("let g = f32(2.5)  %y[n, m] = %x[n, m] ** (1 / g)", "%y[n, m] = %x[n, m] ** 0.4")
    check("let g = f32(2.5)  let h = 1 / g  %y[n, m] = %x[n, m] * h", "let h = 0.4  %y[n, m] = %x[n, m] * h")
    check("let yes = 1 < 2  %y[n, m] = select(yes, %x[n, m], 0)", "%y[n, m] = %x[n, m]")
    check("let e = i32(4)  %y[n, m] = %x[n, m] ** e", "let e = i32(4)  %y[n, m] = %x[n, m] ** e")


def test_a_literal_keeps_its_type_among_new_neighbours() -> None:
    # 1/3 in f64 beside an f32 would be read as f32, and i64 beside i32 as i32: then the type is written.
    check("let g = f64(3)  %y[n, m] = %x[n, m] * (1 / g)", "%y[n, m] = %x[n, m] * f64(0.3333333333333333)", "f64")
    check("let g = i64(3)  %y[n, m] = %i[n, m] * (g + 1)", "%y[n, m] = %i[n, m] * i64(4)", "i64")
    check("let g = f64(3)  %y[n, m] = %d[n, m] * (1 / g)", "%y[n, m] = %d[n, m] * 0.3333333333333333", "f64")
    check("%y[n, m] = %d[n, m] * (f32(1) / f32(3))", "%y[n, m] = %d[n, m] * 0.3333333432674408", "f64")


def test_unread_definitions_go() -> None:
    check("let a = 2  %p[n, m] = %x[n, m] * a  %y[n, m] = %x[n, m]", "%y[n, m] = %x[n, m]")
    check("%p[n, m] = %x[n, m]  %q[n, m] = %p[n, m]  %y[n, m] = %q[n, m]", "%p[n, m] = %x[n, m]  %q[n, m] = %p[n, m]  %y[n, m] = %q[n, m]")
    contracts = "memory { %p { border = wrap } } schedule { %p { place = register } }"
    check("%p[n, m] = %x[n, m]  %y[n, m] = %x[n, m]", "%y[n, m] = %x[n, m]", more=contracts, more_after="")
    check("%p[0, m] = %x[0, m]  %p[n in 1..N, m] = %p[n - 1, m] + 1  %y[n, m] = %x[n, m]", "%y[n, m] = %x[n, m]")


def test_a_local_that_only_a_dead_branch_reads_goes() -> None:
    check("%p[n, m] = %x[n, m] + s  %y[n, m] = select(false, %p[n, m], %x[n, m])", "%y[n, m] = %x[n, m]")


def test_fast_math_operators_fold_no_floats() -> None:
    # 1e-30 * 1e-10 is subnormal, and such an operator may flush it.
    check("%y[n, m] = %x[n, m] + 1e-30 * 1e-10", "%y[n, m] = %x[n, m] + 1e-30 * 1e-10", more="compile { fast_math = true }")
    check("%y[n, m] = %x[n, m] + 1e-30 * 1e-10", "%y[n, m] = %x[n, m] + 1e-40")
    check("%y[n, m] = %i[n, m] + (1 + 2)", "%y[n, m] = %i[n, m] + 3", "i32", more="compile { fast_math = true }")


def test_dimensions_take_their_normal_form() -> None:
    text = "op @f.1(%x: tensor<NxMxf32>) -> (%y: tensor<({})xMxf32>) {{ compute {{ %y[n, m] = %x[0, m] }} }}"
    (old,) = parse(text.format("N + N - 2 * N + 3").encode(), "t.plir").operators
    new = simplify_operator(old)
    assert str(new.results[0].type.dims[0]).startswith("IntLit")
    assert new.results[0].type.dims[0].value == 3  # type: ignore[attr-defined]
    (plain,) = parse(text.format("N + 1").encode(), "t.plir").operators
    assert simplify_operator(plain) is plain


def test_which_dtypes_hold_which() -> None:
    import itertools

    import ml_dtypes
    import numpy as np

    from pipelink_ir.ir.dtypes import DTYPES
    assert ml_dtypes.bfloat16
    small = [d for d in DTYPES.values() if d.bits <= 16]
    for narrow, wide in itertools.product(small, DTYPES.values()):
        values = np.arange(2) != 0 if narrow.kind == "bool" else np.arange(1 << narrow.bits, dtype=f"uint{narrow.bits}").view(narrow.numpy())
        with np.errstate(all="ignore"):
            there = values.astype(np.float64)
        there = there[~np.isnan(there)]
        if wide.kind == "bool":
            fits = narrow.kind == "bool"
        elif wide.is_int:
            fits = not narrow.is_float and bool(np.all((there >= wide.lowest) & (there <= wide.highest)))
        else:
            with np.errstate(all="ignore"):
                back = there.astype(wide.numpy()).astype(np.float64)
            fits = bool(np.all((back == there) & (np.signbit(back) == np.signbit(there))))
        assert holds(narrow, wide) == fits, (narrow, wide)
    assert holds(DTYPES["i32"], DTYPES["f64"])
    assert not holds(DTYPES["i32"], DTYPES["f32"])
    assert not holds(DTYPES["i64"], DTYPES["f64"])
    assert not holds(DTYPES["f64"], DTYPES["f32"])
