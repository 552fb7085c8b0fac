"""The prover proves what the language asks for, and nothing that is not so."""
from __future__ import annotations

from random import Random

import numpy as np
import pytest

from pipelink_ir.ir.nodes import Apply, Expr, FloatLit, IntLit, Name, Read
from pipelink_ir.ir.prover import Facts, equal
from tests.unit.brute import DIMS, GRID, INDICES, SHAPE, condition, everywhere, integer
from tests.unit.int_expressions import expr, show


def facts(dims: str, *said: str, **more: object) -> Facts:
    """Facts from `i in lo..hi` and conditions."""
    out = Facts(dims.split(), **more)  # type: ignore[arg-type]
    for s in said:
        if " in " in s:
            index, (lo, hi) = s.split(" in ")[0], s.split(" in ")[1].split("..")
            out = out.with_range(index, expr(lo), expr(hi))
        else:
            out = out.with_condition(expr(s))
    return out


PROVABLE = [
    # indices, dimensions, windows
    ("H W", ["h in 0..H"], ["h >= 0", "h < H", "h + 1 - 1 < H", "H >= 1", "0 <= H - 1 - h", "H - 1 - h < H", "H - 1 >= 0"]),
    ("H K", ["h in 0..H - K + 1", "k in 0..K"], ["h + k < H", "h + k >= 0"]),
    ("H", ["h in 0..H - 2", "i in 0..3"], ["h + i < H"]),
    ("T", ["t in 1..T"], ["t - 1 >= 0", "t - 1 < T"]),
    ("T", ["t in 0..T - 1"], ["t + 1 < T", "t + 1 >= 0"]),
    ("T", ["T >= 1"], ["T - 1 >= 0", "T - 1 < T"]),
    # parts of an axis
    ("C CA", ["CA >= 1", "CA < C", "c in 0..C - CA"], ["c + CA < C", "c + CA >= 0"]),
    ("H G", ["i in H..H + G"], ["i - H >= 0", "i - H < G"]),
    ("A M B", ["k in 0..A + M + B"], ["k < A or (k >= A and k < A + M) or (k >= A + M and k < A + M + B)"]),
    ("A M B", ["k in A + M..A + M + B"], ["k - A - M >= 0", "k - A - M < B", "not (k < A)", "not (k >= A and k < A + M)"]),
    # parity and division
    ("L", ["s in 0..2*L + 1", "not (s % 2 == 0)"], ["s // 2 < L", "s // 2 >= 0"]),
    ("L", ["s in 0..2*L + 1", "s % 2 == 1"], ["s // 2 < L", "s >= 1"]),
    ("L", ["s in 0..2*L + 1", "s % 2 != 0"], ["s // 2 < L"]),
    ("L", ["s in 0..2*L + 1", "s >= 2", "s % 2 == 1"], ["s >= 3", "(s - 2) // 2 < L", "(s - 2) % 2 == 1", "(s - 2) // 2 >= 0"]),
    ("H", ["h in 0..H // 2", "i in 0..2"], ["2 * h + i < H", "2 * h + 1 < H"]),
    ("H", ["H % 2 == 0", "h in 0..H"], ["h // 2 < H // 2", "h // 2 >= 0", "2 * (H // 2) == H"]),
    ("H", ["h in 0..2 * H"], ["h // 2 < H"]),
    ("H", ["i in 0..ceildiv(H, 2)"], ["2 * i < H", "2 * i + 1 < H or 2 * i + 1 == H"]),
    ("K", ["K >= 1"], ["(K - 1) // 2 < K", "(K - 1) // 2 >= 0"]),
    ("K", ["K % 16 == 0", "k in 0..K // 16", "i in 0..16"], ["16 * k + i < K"]),
    ("N G", ["N == 4 * G", "g in 0..G", "i in 0..4"], ["4 * g + i < N", "N // 4 == G", "N % 4 == 0"]),
    ("C", [], ["C // 3 + (C - C // 3) == C", "ceildiv(C, 2) + C // 2 == C", "4 * ceildiv(C, 4) >= C", "C // 2 <= C"]),
    ("C", ["C >= 3"], ["C // 3 >= 1", "C // 3 < C"]),
    # division by a symbol
    ("X q", [], ["q * (X // q) <= X", "q * (X // q) >= 0", "X % q >= 0", "q == 0 or X % q < q", "X // q <= X", "X % q <= X"]),
    ("H W", ["p in 0..H * W"], ["p // W < H", "p // W >= 0", "p % W < W", "(p // W) * W + p % W == p", "W >= 1", "H >= 1"]),
    ("H W", ["h in 0..H", "w in 0..W"], ["h * W + w < H * W", "(h * W + w) // W == h", "(h * W + w) % W == w"]),
    ("N H W", ["p in 0..N * H * W"], ["p // (H * W) < N", "(p // W) % H < H", "p % (H * W) // W < H"]),
    ("N H W", ["n in 0..N", "h in 0..H", "w in 0..W"], ["(n * H + h) * W + w < N * H * W", "((n * H + h) * W + w) // W % H == h"]),
    ("H W r", ["h in 0..H", "i in 0..r"], ["h * r + i < H * r", "(h * r + i) // r == h"]),
    ("G C", ["C % G == 0", "G >= 1", "g in 0..G", "c in 0..C // G"], ["g * (C // G) + c < C"]),
    # wrapping and clamping
    ("H W", ["h in 0..H", "w in 0..W"],
     ["(w + 1) % W < W", "(w + 1) % W >= 0", "(w - 1) % W < W", "max(h - 1, 0) < H", "max(h - 1, 0) >= 0", "min(h + 1, H - 1) < H", "min(h + 1, H - 1) >= 0",
      "clamp(h - 5, 0, H - 1) < H", "clamp(h - 5, 0, H - 1) >= 0", "abs(h - 1) < H or H == 1", "min(h, W) <= W", "abs(h) == h"]),
    ("", [], ["(i + 1) % 2 < 2", "(i + 1) % 2 >= 0", "i % 3 <= 2"]),
    # ranks
    ("K R", ["R >= 1", "R <= K", "r in 0..R"], ["-1 - r >= -K", "-1 - r < K", "r < K"]),
    # guards
    ("N", ["i in 0..N", "i >= 1"], ["i - 1 >= 0", "i - 1 < N"]),
    ("N", ["i in 0..N", "i + 1 < N"], ["i + 1 < N", "i + 1 >= 0"]),
    ("N", ["i in 0..N", "not (i < 2 or i > N - 3)"], ["i - 2 >= 0", "i + 2 < N"]),
    ("N", ["i in 0..N", "i != 0"], ["i - 1 >= 0"]),
    ("N", ["i in 0..N", "i == 0 or i >= 3"], ["i != 2", "max(i - 3, 0) <= N"]),
    ("N", ["i in 0..N"], ["select(i >= 1, i - 1, 0) >= 0", "select(i >= 1, i - 1, 0) < N", "select(i + 1 < N, i + 1, 0) < N"]),
    ("N", ["i in 0..N", "select(i > 3, i < 5, i == 1)"], ["i == 4 or i == 1"]),
    ("D H", ["D == H", "h in 0..D"], ["h < H", "D * h + h <= H * D"]),
    ("S", ["i in 0..S", "j in 0..S", "j <= i"], ["i - j >= 0", "i - j < S"]),
    # what operators do: strides, dilation, groups, pixel shuffle, rotary embedding, bands, mirrored borders
    ("H K S", ["S >= 1", "H >= K", "K >= 1", "h in 0..(H - K) // S + 1", "k in 0..K"], ["h * S + k < H", "h * S + k >= 0"]),
    ("H K S D P", ["S >= 1", "K >= 1", "H + 2 * P - D * (K - 1) - 1 >= 0", "h in 0..(H + 2 * P - D * (K - 1) - 1) // S + 1", "k in 0..K"],
     ["h * S + k * D < H + 2 * P", "h * S + k * D - P < H + P", "h * S + k * D - P >= -P"]),
    ("C r H W", ["c in 0..C", "h in 0..H * r", "w in 0..W * r"], ["(c * r + h % r) * r + w % r < C * r * r", "h // r < H", "w // r < W"]),
    ("H G", ["H % G == 0", "G >= 1", "h in 0..H"], ["h // (H // G) < G", "h % (H // G) < H // G"]),
    ("K C G k2 c2", ["K == k2 * G", "C == c2 * G", "k in 0..K", "c in 0..c2"], ["k // k2 * c2 + c < C", "k // k2 < G"]),
    ("K C G", ["K % G == 0", "C % G == 0", "G >= 1", "k in 0..K", "c in 0..C // G"], ["k // (K // G) * (C // G) + c < C"]),
    ("D", ["D % 2 == 0", "d in 0..D"],
     ["select(d < D // 2, d + D // 2, d - D // 2) < D", "select(d < D // 2, d + D // 2, d - D // 2) >= 0", "d + 1 - 2 * (d % 2) < D", "2 * (d // 2) + 1 < D"]),
    ("L W", ["i in 0..L", "j in max(0, i - W)..min(L, i + W + 1)"], ["j < L", "j >= 0", "j - i + W >= 0", "j - i + W < 2 * W + 1"]),
    ("H P", ["P < H", "h in 0..H + 2 * P"], ["(H - 1) - abs((H - 1) - abs(h - P)) < H", "(H - 1) - abs((H - 1) - abs(h - P)) >= 0"]),
    ("A B C D", ["i in 0..A * B * C * D"], ["i // (B * C * D) < A", "i // (C * D) % B < B", "i // D % C < C"]),
    ("N", ["i in 0..N", "j in i + 1..N"], ["i + 1 < N", "j >= 1", "i * (N - 1) - i * (i - 1) // 2 + j - i - 1 >= 0"]),
]


@pytest.mark.parametrize(("dims", "said", "goal"), [(d, s, g) for d, s, goals in PROVABLE for g in goals])
def test_proves(dims: str, said: list[str], goal: str) -> None:
    assert facts(dims, *said).prove(expr(goal))


UNPROVABLE = [
    ("H", ["h in 0..H"], ["h - 1 >= 0", "h + 1 < H", "h // 2 < H // 2", "2 * h < H", "h != 0"]),
    ("H OW", ["w in 0..OW"], ["w // 2 < H"]),
    ("L", ["s in 0..2*L + 1"], ["s // 2 < L"]),
    ("K", [], ["K >= 1", "K - 1 >= 0", "(K - 1) // 2 >= 0"]),
    ("X q", [], ["X % q < q", "q * (X // q) == X", "X // q * q + X % q == X"]),   # X mod 0 and X floordiv 0 are 0
    ("H W", [], ["(H * W) // W == H", "H * W >= H"]),                              # W may be 0
    ("", ["i >= 0"], ["i % k < k", "x >= 0"]),
    ("G C", ["C % G == 0", "c in 0..C"], ["c // (C // G) < G"]),                   # C mod 0 is 0 too
    ("", [], ["i % (0 - 2) >= 0", "i * j >= i", "i // k <= i"]),
    ("N", ["n in o[b]..o[b + 1]"], ["n < N", "n >= 0"]),
]


@pytest.mark.parametrize(("dims", "said", "goal"), [(d, s, g) for d, s, goals in UNPROVABLE for g in goals])
def test_does_not_prove(dims: str, said: list[str], goal: str) -> None:
    held = facts(dims, *said)
    assert not held.prove(expr(goal))
    assert not held.refuted(expr(goal))


def test_refutes_what_never_holds() -> None:
    assert facts("H W").refuted(expr("3 < 3"))
    assert facts("H W", "h in 0..H").refuted(expr("h + H < h"))
    assert facts("H", "h in 0..H").refuted(expr("h - H >= 0"))
    assert facts("K R", "K == 100").refuted(expr("K % 16 == 0"))


def test_an_empty_scope_proves_everything() -> None:
    held = facts("H", "h in 0..H", "H == 0")
    assert held.contradictory()
    assert held.prove(expr("h > 100"))
    assert held.refuted(expr("h == h"))
    assert facts("H", "H < 0").contradictory()
    assert facts("A B", "A > B", "B >= A").contradictory()
    assert not facts("H", "h in 0..H").contradictory()


def test_facts_are_immutable() -> None:
    base = facts("H", "h in 0..H")
    inner = base.with_condition(expr("h >= 2"))
    assert inner.prove(expr("h - 2 >= 0"))
    assert not base.prove(expr("h - 2 >= 0"))


# ------------------------------------------------------------------------------------------------------------------------------- data

READS = {"i": "i32", "n": "i32", "u": "i32", "x": "f32", "long": "i64", "k": "i64", "N": "i64"}


def data(said: list[str]) -> Facts:
    held = Facts(["N", "H"], interval=lambda r: (0, 255) if r.tensor == "u" else None)
    for s in said:
        held = held.with_condition(expr(s, READS, typed=True))
    return held


@pytest.mark.parametrize(("said", "goal", "proven"), [
    ([], "u[k] < 256", True),
    ([], "u[k] >= 0", True),
    ([], "2 * u[k] + 1 <= 511", True),
    ([], "u[k] <= 254", False),
    ([], "i[k] + 1 > i[k]", False),                                   # 2147483647 + 1 wraps
    ([], "i64(i[k]) + 1 > i64(i[k])", True),
    ([], "long[k] + 1 > long[k]", False),
    (["i[k] < 100"], "i[k] + 1 > i[k]", True),
    (["i[k] >= 1", "i[k] < N"], "i[k] - 1 < N", True),
    (["i[k] >= 1", "i[k] < N"], "i[k] - 1 >= 0", True),
    (["i[k] < N"], "i[k] - 1 < N", False),                            # -2147483648 - 1 wraps
    (["i[k] == N"], "i[k + 1 - 1] == N", True),                       # the same place
    (["i[k] == N"], "i[k + 1] == N", False),
    ([], "abs(i[k]) >= 0", False),                                    # abs(-2147483648) is itself
    ([], "abs(u[k]) >= 0", True),
    ([], "i[k] * i[k] >= 0", False),
    ([], "u[k] * u[k] >= 0", True),
    ([], "u[k] ** 2 <= 65025", True),
    ([], "i[k] % 10 < 10", True),
    ([], "clamp(i[k], 0, 7) <= 7", True),
    ([], "u8(i[k]) <= 255", True),
    ([], "u8(i[k]) == i[k]", False),
    (["i[k] >= 0", "i[k] < 256"], "u8(i[k]) == i[k]", True),
    ([], "sat_u8(i[k]) <= i[k] or i[k] < 0", True),
    ([], "i32(x[k]) < 2147483648", True),
    ([], "i32(x[k]) >= 0", False),
    ([], "i8(x[k]) >= -128", True),
    ([], "i32(N) == N", False),                                       # N may be larger than an i32
    (["N < 1000"], "i32(N) == N", True),
    (["N >= 0", "N < 1000"], "i32(N) + 1 <= 1000", True),
])
def test_data(said: list[str], goal: str, proven: bool) -> None:
    assert data(said).prove(expr(goal, READS, typed=True)) is proven


def test_reads_of_unknown_type_prove_nothing() -> None:
    held = Facts(["N"]).with_condition(expr("y[k] > 0"))
    assert not held.prove(expr("y[k] >= 1"))          # 0.5


def test_comparisons_of_floats_are_opaque() -> None:
    held = Facts(["N"]).with_condition(expr("x[k] < 1", READS, typed=True), False)
    assert not held.prove(expr("x[k] >= 1", READS, typed=True))       # a NaN is neither
    assert held.refuted(expr("x[k] < 1", READS, typed=True))          # but the same comparison gives the same
    real = Facts(["N"], reals={"gamma"}).with_condition(expr("gamma > 0"))
    assert not real.prove(expr("gamma >= 1"))
    assert not Facts(["N"]).with_condition(Apply(">", (Name("N"), FloatLit(0.5)))).prove(expr("N > 1"))


def test_a_guard_of_data() -> None:
    held = Facts(["N"]).with_condition(expr("mask[j] and not hole[j]"))
    assert held.prove(expr("mask[j]"))
    assert held.refuted(expr("hole[j]"))
    assert not held.prove(expr("mask[k]"))


# ------------------------------------------------------------------------------------------------------------------------ definitions


def ctc(read: Read) -> Expr | None:
    """The locals of `ctc_loss` that guard, their indices put in."""
    body = {"skip": "s >= 2 and s % 2 == 1 and ext[b, s] != ext[b, s - 2]", "half": "s // 2", "ext": "select(s % 2 == 0, blank, labels[b, s // 2])"}
    if read.tensor not in body:
        return None
    at = read.indices[-1]

    def put(e: Expr) -> Expr:
        if isinstance(e, Name):
            return at if e.name == "s" else e
        if isinstance(e, Apply):
            return Apply(e.fn, tuple(put(a) for a in e.args))
        return Read(e.tensor, tuple(put(i) for i in e.indices)) if isinstance(e, Read) else e
    return put(expr(body[read.tensor]))


def test_guards_hold_through_definitions() -> None:
    held = facts("L", "s in 0..2*L + 1", define=ctc)
    skipped = held.with_condition(expr("skip[b, s]"))
    assert skipped.prove(expr("s - 2 >= 0"))
    assert skipped.prove(expr("s // 2 < L"))
    assert skipped.prove(expr("half[b, s] < L"))
    assert skipped.prove(expr("half[b, s - 2] >= 0"))
    assert not held.prove(expr("s - 2 >= 0"))
    assert not held.with_condition(expr("skip[b, s]"), False).prove(expr("s < 2"))
    assert held.with_condition(expr("not skip[b, s]")).prove(expr("not skip[b, s]"))


def test_definitions_that_read_themselves_end() -> None:
    held = Facts(["N"], define=lambda r: Apply("+", (Read("a", r.indices), Read("a", r.indices))) if r.tensor == "a" else None)
    assert not held.prove(expr("a[i] >= 0"))


# ---------------------------------------------------------------------------------------------------------------------------- bounds

BOUNDS = [
    ("H", ["h in 0..H"], "h - 2", "-2", "H - 2"),
    ("L", ["s in 0..2*L + 1", "s >= 2"], "s - 2", "0", "2 * L - 1"),
    ("I", ["i in 0..I"], "(i + 1) % 2", "0", "2"),
    ("H W", ["h in 0..H", "w in 0..W"], "h * W + w", "0", "H * W"),
    ("H", ["h in 0..H"], "h // 2", "0", "(H + 1) // 2"),
    ("L", ["s in 0..2*L + 1", "s % 2 == 1"], "s // 2", "0", "L"),
    ("H W", ["p in 0..H * W"], "p // W", "0", "H"),
    ("H W", ["p in 0..H * W"], "p % W", "0", "W"),
    ("H", ["h in 0..H"], "max(h - 1, 0)", "0", "max(1, H - 1)"),
    ("H W", ["h in 0..H", "w in 0..W"], "min(h, w)", "0", "min(H, W)"),
    ("H W", ["h in 0..H", "H <= W"], "h + 1", "1", "H + 1"),
    ("H", ["h in 0..H"], "H - 1 - h", "0", "H"),
    ("A B", ["k in A..A + B"], "k - A", "0", "B"),
    ("H", ["h in 0..H", "i in 0..3"], "h + i - 1", "-1", "H + 1"),
    ("H", ["h in 0..H"], "select(h >= 1, h - 1, 0)", "0", "max(1, H - 1)"),
    ("N", [], "N - 1", "N - 1", "N"),
    ("", [], "7", "7", "8"),
]


@pytest.mark.parametrize(("dims", "said", "index", "lo", "hi"), BOUNDS)
def test_bounds(dims: str, said: list[str], index: str, lo: str, hi: str) -> None:
    held = facts(dims, *said)
    low, high = held.bounds(expr(index), dims.split())
    assert low is not None
    assert high is not None
    assert equal(low, expr(lo)), show(low)
    assert equal(high, expr(hi)), show(high)


def test_bounds_that_do_not_exist() -> None:
    assert facts("H", "h in 0..H").bounds(expr("h + k"), ["H"]) == (None, None)
    low, high = facts("H", "k >= 0").bounds(expr("k + H"), ["H"])
    assert low is not None
    assert show(low) == "H"
    assert high is None
    assert data([]).bounds(expr("i[k]", READS, typed=True), ["N"]) == (IntLit(-2**31), IntLit(2**31))


# ------------------------------------------------------------------------------------------------------------------------- brute force


def scope(r: Random) -> tuple[Facts, np.ndarray, list[str]]:
    """Random ranges and guards, the points of the grid that satisfy them, and their text."""
    held, inside, said = Facts(DIMS), np.ones(SHAPE, bool), []
    for index in INDICES:
        lo = expr(r.choice(("0", "0", "0", "1", "W" if index == "j" else "0")))
        hi = r.choice((expr("H"), expr("W"), expr("2 * H"), expr("H // 2"), expr("H - 1"), expr("H + W"), expr("3"), integer(r, 1, DIMS)))
        held = held.with_range(index, lo, hi)
        inside = inside & everywhere(Apply(">=", (Name(index), lo))) & everywhere(Apply("<", (Name(index), hi)))
        said.append(f"{index} in {show(lo)}..{show(hi)}")
    for _ in range(r.choice((0, 0, 1, 1, 2))):
        c, holds = condition(r, r.choice((1, 1, 2)), DIMS + INDICES), r.random() < 0.8
        held = held.with_condition(c, holds)
        inside = inside & (everywhere(c) == holds)
        said.append(f"{'' if holds else 'not '}({show(c)})")
    return held, inside, said


@pytest.mark.parametrize("seed", range(8))
def test_what_is_proven_holds_on_the_grid(seed: int) -> None:
    r = Random(seed)
    true = proven = 0
    for _ in range(20):
        held, inside, said = scope(r)
        if inside.any():
            assert not held.contradictory(), said
        for _ in range(3):
            goal = condition(r, r.choice((0, 1, 1, 2)), DIMS + INDICES)
            holds = everywhere(goal)[inside]
            always, found = bool(holds.all()), held.prove(goal)
            assert always or not found, (said, show(goal))
            assert not holds.any() or not held.refuted(goal), (said, show(goal))
            if always and len(holds):
                true, proven = true + 1, proven + found
    assert proven >= 0.8 * true, f"{proven} of {true}"


@pytest.mark.parametrize("seed", range(4))
def test_bounds_contain_all_values(seed: int) -> None:
    r = Random(seed)
    for _ in range(15):
        held, inside, said = scope(r)
        index = integer(r, r.choice((1, 2)), DIMS + INDICES)
        lo, hi = held.bounds(index, DIMS)
        at = everywhere(index)
        assert lo is None or (everywhere(lo) <= at)[inside].all(), (said, show(index), show(lo))
        assert hi is None or (at < everywhere(hi))[inside].all(), (said, show(index), show(hi))


def test_wrapping_is_never_overlooked() -> None:
    """i32 arithmetic over the extreme values, compared with NumPy's wrap-around."""
    points = np.array([-2**31, -2**31 + 1, -3, -1, 0, 1, 2, 2**31 - 2, 2**31 - 1], np.int32)
    grid = {"n": points.reshape(-1, 1, 1, 1), "i": points.reshape(1, -1, 1, 1)}
    r = Random(5)
    checked = 0
    with np.errstate(over="ignore"):
        for _ in range(1500):
            goal = condition(r, r.choice((0, 1, 2)), ("n", "i"))
            if any(word in show(goal) for word in ("ceildiv", "floordiv", "mod")):
                continue
            read = expr(_python(goal), {"n": "i32", "i": "i32"}, typed=True)
            proven = Facts().prove(read)
            holds = _wrapped(goal, grid)
            assert not proven or bool(np.all(holds)), show(goal)
            checked += proven
    assert checked > 20


def _python(e: Expr) -> str:
    if isinstance(e, Apply):
        if e.fn in ("select", "min", "max", "clamp", "abs"):
            return f"{e.fn}({', '.join(_python(a) for a in e.args)})"
        if e.fn in ("neg", "not"):
            return f"({'-' if e.fn == 'neg' else 'not '}{_python(e.args[0])})"
        return f"({_python(e.args[0])} {e.fn} {_python(e.args[1])})"
    return show(e)


def _wrapped(e: Expr, grid: dict[str, np.ndarray]) -> np.ndarray:
    from tests.unit.brute import values

    def walk(x: Expr) -> np.ndarray:
        if isinstance(x, IntLit):
            return np.full((1, 1, 1, 1), x.value, np.int32)
        if isinstance(x, Name):
            return grid[x.name]
        assert isinstance(x, Apply)
        if x.fn == "**":
            base, power = x.args
            assert isinstance(power, IntLit)
            return walk(base) ** np.int32(power.value)
        names = {f"a{k}": walk(a) for k, a in enumerate(x.args)}
        return np.asarray(values(Apply(x.fn, tuple(Name(n) for n in names)), names))
    return walk(e)


def test_grid_is_large_enough() -> None:
    assert GRID["i"].max() >= 2 * GRID["H"].max()
