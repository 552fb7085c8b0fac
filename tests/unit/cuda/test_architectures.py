"""Everything that is emitted compiles for every architecture: all cases, examples and operators of the library, and kernels with every function, every cast
and every way in which threads combine."""
from __future__ import annotations

import operator
import re
from functools import cache

import pytest

from pipelink_ir.backends.cuda import prelude
from pipelink_ir.backends.cuda.compile import compile_units, lowered
from pipelink_ir.backends.cuda.emit import UnitCode, emit_unit
from pipelink_ir.backends.cuda.target_facts import CUDA
from pipelink_ir.backends.loops.form import PRIMITIVES, Alloc, Barrier, Combine, Const, Convert, Fail, For, Let, Op, Program, Ref, Stmt, Store, Var
from pipelink_ir.ir.dtypes import BOOL, DTYPES, F32, F64, I32, I64, DType
from pipelink_ir.ir.nodes import Node, Operator
from pipelink_ir.ir.targets import Arch
from tests.unit.cuda.forms import ONE, ROOT, ZERO, I, N, buffer, grid, kernel, load, op, prepared, program

ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 120)
PROGRAMS = sorted([*ROOT.glob("tests/cases/*.plir"), *ROOT.glob("tests/cases/good/*.plir"), *ROOT.glob("examples/*.plir")])

LIBRARY = """import std.image
import std.nn
pipeline @library(%u: tensor<NxHxWx3xu8, NHWC>, %m: tensor<3xf32>, %h: tensor<MxKxf16>, %g: tensor<Kxf16>, %b: tensor<MxKxbf16>, %k: tensor<MxKxbool>,
                  %w: tensor<KxLxf16>, %c: tensor<Lxf16>, %p: tensor<NxCxHxWxf32, NCHW>, %e: tensor<MxKxf8e4m3>)
    -> (%copy: tensor<NxHxWx3xu8, NHWC>, %s: tensor<NxHxWx3xu8, NHWC>, %cast: tensor<MxKxf8e5m2>, %i: tensor<MxKxi8>, %d: tensor<MxKxf16>,
        %gray: tensor<NxHxWx1xf32, NHWC>, %n: tensor<NxHxWx3xf32, NHWC>, %chw: tensor<Nx3xHxWxf16, NCHW>, %plane: tensor<Nx3xHxWxf32, NCHW>,
        %last: tensor<NxHxWxCxf32, NHWC>, %edge: tensor<NxHxWx1xf32, NHWC>, %big: tensor<Nx9x9x3xf32, NHWC>, %near: tensor<Nx5x4x3xu8, NHWC>,
        %tri: tensor<Nx3x2x3xf32, NHWC>, %r: tensor<MxKxf16>, %r6: tensor<MxKxbf16>, %ge: tensor<MxKxf16>, %gt: tensor<MxKxbf16>, %sum: tensor<MxKxf16>,
        %soft: tensor<MxKxf16>, %masked: tensor<MxKxbf16>, %norm: tensor<MxKxf16>, %lin: tensor<MxLxf16>) {
  %copy = @std.copy(%u)
  %cast = @std.cast(%e) {U = f8e5m2}
  %i = @std.quantize(%h) {scale = 0.5, zero = 3}
  %d = @std.dequantize(%i) {scale = 0.5, zero = 3, U = f16}
  %unit = @std.image.u8_to_unit(%u)
  %dark = @std.image.gamma_encode(%unit)
  %light = @std.image.gamma_decode(%dark) {gamma = 2.0}
  %linear = @std.image.srgb_to_linear(%light)
  %srgb = @std.image.linear_to_srgb(%linear)
  %s = @std.image.unit_to_u8(%srgb)
  %gray = @std.image.gray(%unit) {weights = bt709}
  %n = @std.image.normalise(%unit, %m, %m)
  %chw = @std.image.to_tensor(%unit) {U = f16}
  %plane = @std.image.nhwc_to_nchw(%unit)
  %last = @std.image.nchw_to_nhwc(%p)
  %edge = @std.image.sobel_magnitude(%gray) {edge = reflect101}
  %big = @std.image.resize_bilinear(%unit) {OH = 9, OW = 9}
  %near = @std.image.resize_nearest(%u) {OH = 5, OW = 4}
  %tri = @std.image.resize_triangle(%unit) {OH = 3, OW = 2}
  %r = @std.nn.relu(%h)
  %r6 = @std.nn.relu6(%b)
  %ge = @std.nn.gelu_erf(%h)
  %gt = @std.nn.gelu_tanh(%b)
  %sum = @std.nn.add(%r, %ge)
  %soft = @std.nn.softmax(%h)
  %masked = @std.nn.softmax_masked(%b, %k)
  %norm = @std.nn.layer_norm(%h, %g, %g)
  %lin = @std.nn.linear(%h, %w, %c)
}
"""

TILES = """op @halves(%x: tensor<NxHxWx3xf16>, %k: tensor<3x3xf32>) -> (%y: tensor<NxHxWx3xf16>) {
  memory { %x { border = reflect101 }, %a { border = constant(1) } }
  compute {
    %a[n < N, h < H, w < W, c < 3] = f16(sum[i < 3, j < 3](%x[n, h + i - 1, w + j - 1, c] * %k[i, j]))
    %y[n, h, w, c] = sum[i < 3, j < 3](%a[n, h + i - 1, w + j - 1, 2 - c] * %k[i, j])
  }
}
op @loops(%x: tensor<HxWxf32>, %k: tensor<7x7xf32>) -> (%y: tensor<HxWxf32>) {
  memory { border = reflect, %a { border = reflect } }
  compute {
    %a[h < H, w < W] = sum[i < 7, j < 7](%x[h + i - 3, w + j - 3] * %k[i, j])
    %y[h, w] = sum[i < 7, j < 7](%a[h + i - 3, w + j - 3] * %k[i, j])
  }
}
pipeline @tiles(%x: tensor<NxHxWx3xf16>, %k: tensor<3x3xf32>, %z: tensor<HxWxf32>, %m: tensor<7x7xf32>) -> (%y: tensor<NxHxWx3xf16>, %o: tensor<HxWxf32>) {
  %y = @halves(%x, %k)
  %o = @loops(%z, %m)
}
"""

TYPES = (I32, I64, F32, F64)


def _arguments(fn: str, dtype: DType) -> Op | None:
    """The function on values loaded, where it has that type."""
    three, two = fn == "fma", fn in {"+", "-", "*", "/", "min", "max", "fmin", "fmax", "floordiv", "mod", "quot", "rest", "pow", "atan2", "==", "!=", "<", "<=", ">", ">="}
    ints = fn in {"+", "-", "*", "neg", "min", "max", "abs", "sign", "floordiv", "mod", "==", "!=", "<", "<=", ">", ">="} or (fn in {"quot", "rest"} and dtype is I64)
    if fn in {"and", "or", "not"} or (dtype.is_int and not ints) or (dtype.is_float and fn in {"quot", "rest"}):
        return None
    x = load(dtype.name, dtype)
    return op(fn, *[x] * (3 if three else 2 if two else 1))


def functions() -> Program:
    """Every function in every type, exact and fast too; the results go where nothing is optimised away."""
    kernels = []
    for exact, fast in ((False, False), (True, False), (False, True)):
        body: list[Stmt] = []
        for fn in sorted(PRIMITIVES if not (exact or fast) else ("/", "sqrt", "exp")):
            for dtype in TYPES:
                x = _arguments(fn, dtype)
                if x is not None:
                    body.append(Store(f"r_{x.dtype.name}", op("+", op("*", I, Const(500, I64)), Const(len(body), I64)), x, x.dtype))
        buffers = [*(buffer(d.name, d) for d in TYPES), *(buffer(f"r_{d.name}", d, "result") for d in (*TYPES, BOOL))]
        kernels.append(kernel(grid(*body), *buffers, name="functions", exact=exact, fast=fast))
    return program(*kernels)


def casts() -> Program:
    """Every dtype into every other, from memory to memory, integers saturated too."""
    body: list[Stmt] = []
    for source in DTYPES.values():
        for to in DTYPES.values():
            for saturate in {False, to.is_int and source.is_int}:
                value = Convert(load(source.name, source), to, to.compute, saturate)
                body.append(Store(f"r_{to.name}", op("+", op("*", I, Const(500, I64)), Const(len(body), I64)), value, to))
    buffers = [*(buffer(d.name, d) for d in DTYPES.values()), *(buffer(f"r_{d.name}", d, "result") for d in DTYPES.values())]
    return program(kernel(grid(*body), *buffers, name="casts"))


def blocks() -> Program:
    """Every way to combine, in every type, with all kinds of scratch."""
    body: list[Stmt] = [Alloc("shared", F32, Const(300, I64), True), Alloc("large", F64, Const(9000, I64), True), Alloc("own", I32, N), Alloc("few", F32, Const(4, I64))]
    k = 0
    for fn in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
        for dtype in (BOOL,) if fn in ("any", "all") else TYPES:
            var = f"v{k}"
            body.append(Var(var, dtype, load(dtype.name, dtype, Ref("b", I64))))
            names: tuple[str, ...] = (var,)
            if fn.startswith("arg"):
                body.append(Var(f"at{k}", I32 if k % 2 else I64, Const(-1, I32 if k % 2 else I64)))
                names = (var, f"at{k}")
            body += [Combine(fn, names), Store(f"r_{dtype.name}", op("+", op("*", Ref("b", I64), Const(99, I64)), Const(k, I64)), Ref(var, dtype), dtype)]
            k += 1
    thread = For("t", ZERO, N, ONE, (Store("shared", Ref("t", I64), load("f32", F32, Ref("t", I64)), F32), Store("large", Ref("t", I64), Const(1.0, F64), F64),
                                     Let("n", Convert(load("i32", I32, Ref("t", I64)), I64, I64)), Alloc("heap", F64, Ref("n", I64)), Store("heap", ZERO, Const(1.0, F64), F64),
                                     Fail(0, (Ref("t", I64), N, Const(1, I64), Ref("n", I64)))), "thread")
    body += [thread, Store("own", ZERO, Const(1, I32), I32), Store("few", ZERO, Const(1.0, F32), F32), Barrier(),
             Store("r_f32", Ref("b", I64), op("+", load("few", F32, ZERO), load("shared", F32, ONE)), F32),
             Store("r_f64", Ref("b", I64), load("large", F64, ONE), F64), Store("r_i32", Ref("b", I64), load("own", I32, ZERO), I32)]
    buffers = [*(buffer(d.name, d) for d in (*TYPES, BOOL)), *(buffer(f"r_{d.name}", d, "result") for d in (*TYPES, BOOL))]
    return program(kernel((For("b", ZERO, N, ONE, tuple(body), "block"),), *buffers, name="blocks"))


@cache
def units() -> tuple[UnitCode, ...]:
    """All texts, of about thirty kernels each."""
    programs: list[tuple[Program, Operator | None]] = [(functions(), None), (casts(), None), (blocks(), None)]
    modules = [prepared(path) for path in PROGRAMS] + [prepared("library.plir", LIBRARY), prepared("tiles.plir", TILES)]
    for module in modules:
        operators = {o.name: o for o in module.operators}
        for name in dict.fromkeys(n.op for p in module.pipelines for n in p.nodes if isinstance(n, Node)):
            programs.append((lowered(operators[name]), operators[name]))
    groups: list[list[tuple[Program, Operator | None]]] = [[]]
    for item in programs:
        if sum(len(p.kernels) for p, _ in groups[-1]) >= 30:
            groups.append([])
        groups[-1].append(item)
    return tuple(emit_unit(group) for group in groups)


def test_there_is_much_to_compile() -> None:
    from pipelink_ir.grammar import parse
    std = {f"std.{path.stem}.{o.name}".replace("std.core.", "std.") for path in (ROOT / "pipelink_ir/std").glob("*.plir") for o in parse(path.read_text(), str(path)).operators}
    assert not [name for name in std if f"@{name}(" not in LIBRARY]
    assert len(PROGRAMS) >= 25
    assert sum(len(u.kernels) for u in units()) >= 150


def alike(sm: int) -> tuple[bool, ...]:
    """Which conditions on the architecture hold in the prelude: where the same do, the compiler is given the same text."""
    header = prelude.header(CUDA)
    conditions = re.findall(r"__CUDA_ARCH__ *(>=|<=|<|>|==) *(\d+)", header)
    assert len(conditions) == header.count("__CUDA_ARCH__") - header.count("defined(__CUDA_ARCH__)") > 10
    return tuple(COMPARE[how](10 * sm, int(number)) for how, number in conditions)


COMPARE = {">=": operator.ge, "<=": operator.le, "<": operator.lt, ">": operator.gt, "==": operator.eq}
ASSEMBLED = (75, 90, 120)
"""The oldest, the one that code is run as here, and the newest: for the others what ptxas makes of the text is not asked."""


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_everything_compiles(sm: int) -> None:
    """As it is run for one, for the others only that it compiles; of two that are given the same text, the second has the functions of the prelude alone."""
    first = next(a for a in ARCHITECTURES if alike(a) == alike(sm)) == sm
    some = units() if first else units()[:1]
    binaries = compile_units(some, Arch("cuda", sm), quick=sm != 90, virtual=sm not in ASSEMBLED)
    for unit, binary in zip(some, binaries, strict=True):
        assert set(re.findall(r"\.entry (\w+)", binary.ptx)) == {k.symbol for k in unit.kernels}
        assert not binary.cubin or sorted(binary.usage) == sorted(k.symbol for k in unit.kernels)
        # What calls itself without end is told by ptxas alone.
        assert "warning" not in binary.log


def test_some_architectures_are_given_the_same_text() -> None:
    assert alike(86) == alike(87)
    assert len({alike(sm) for sm in ARCHITECTURES}) >= 5
    assert not any("__CUDA_ARCH" in u.text for u in units())


@pytest.mark.usefixtures("nvrtc")
def test_everything_compiles_with_wide_indices() -> None:
    for unit, binary in zip(units(), compile_units(units(), Arch("cuda", 90), wide=True, quick=True, virtual=True), strict=True):
        assert len(set(re.findall(r"\.entry (\w+)", binary.ptx))) == len(unit.kernels)
