"""Pipelines, graphs, packs, modules, and what passes write."""
from __future__ import annotations

import numpy as np

from tests.constructs.case import Case, op, program
from tests.constructs.types import whole

X, Y, Z = whole(2, 3), whole(2, 3), whole(2, 3)
A, B, C = whole(2, 3, 4), whole(2, 1, 4), whole(2, 2, 4)
GAIN = "op @gain(%x: tensor<...xf32>, by: f32 = 2.0, add: f32 = 0.0) -> (%y: tensor<...xf32>) { compute { %y[...] = by * %x[...] + add } }\n"
ADD = "op @add(%a: tensor<...xf32>, %b: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %a[...] + %b[...] } }\n"
STACK = "op @agree(%x: tensor<Kx...xT>) -> (%m: tensor<...xT>, %s: tensor<...xT>) { memory { dtypes = [u8, f16, f32] } compute { %m[...] = T(max[k < K](%x[k, ...])) %s[...] = T(%x[0, ...] - %x[K - 1, ...]) } where K >= 1 }\n"
SCALE = "op @scale(%x: tensor<NxCxWxf32>, %s: tensor<Cxf32>) -> (%y: tensor<NxCxWxf32>) { compute { %y[n, c, w] = %x[n, c, w] * %s[c] } }\n"
GAIN_T = "op @gain(%x: tensor<...xT>, by: f32 = 2.0) -> (%y: tensor<...xT>) { memory { dtypes = [f16, f32] } compute { %y[...] = by * %x[...] } }\n"
HW = "tensor<HxWxf32>"
STRIDED = np.arange(36, dtype=np.float32).reshape(4, 9)
MAIN = f"%x: {HW} -> %y: {HW}"

CASES = [
    # ------------------------------------------------------------------------------------------------------------------ pipelines
    Case("attributes of a pipeline", ("attributes of a pipeline", "node attributes are expressions"), program(GAIN, f"%x: {HW}, gamma: f32 = 3.0, K: dim = 2 -> %y: {HW}, %z: {HW}",
         "where gamma > 0\n%y = @gain(%x) {by = (1 - gamma) / 2, add = f32(H * W) + K}\n%z = @gain(%x) {by = gamma ** 2}"), {"x": X}, {"y": -X + 8, "z": 9 * X}),
    Case("attributes of a pipeline given", "attributes of a pipeline", program(GAIN, f"%x: {HW}, gamma: f32 = 3.0 -> %y: {HW}", "%y = @gain(%x) {by = gamma, add = 1 / gamma}"), {"x": X}, {"y": 0.5 * X + 2}, attributes={"gamma": 0.5}),
    Case("param", "param", program(GAIN + ADD, f"%x: {HW}, param %w: {HW} -> %y: {HW}", "%g = @gain(%w) {by = 3}\n%h = @gain(%g) {add = -1}\n%y = @add(%x, %h)"), {"x": X, "w": Y}, {"y": X + 6 * Y - 1}),
    Case("devices", ("on a device", "as a label"), program(GAIN, MAIN, "%a = @gain(%x) on cpu as first\n%y = @gain(%a) {add = 1} as second on cpu", "on cpu"), {"x": X}, {"y": 4 * X + 1}),
    Case("a declared target", ("target", "on a device"), program(GAIN + "target @t4 { arch = sm_75 }\n", MAIN, "%a = @gain(%x) on @t4\n%y = @gain(%a) on cuda:1", "on cuda:0"), {"x": X}, {"y": 4 * X}),
    Case("after", "after", program(GAIN + ADD, f"%x: {HW} -> %y: {HW}, %z: {HW}", "%z = @gain(%x) after %y, %a as late\n%y = @gain(%a)\n%a = @add(%x, %x)"), {"x": X}, {"y": 4 * X, "z": 2 * X}),
    Case("nodes in any order", "nodes in any order", program(GAIN + ADD, MAIN, "%y = @add(%c, %b)\n%c = @gain(%b) {by = 3}\n%b = @add(%a, %x)\n%a = @gain(%x)"), {"x": X}, {"y": 12 * X}),
    Case("a second name", "%b = %a", program(GAIN, f"%x: {HW} -> %y: {HW}, %z: {HW}, %w: {HW}", "%z = %y\n%y = @gain(%t)\n%t = %x\n%w = %t"), {"x": X}, {"y": 2 * X, "z": 2 * X, "w": X}),
    Case("two results of one node", "several results of a node", program(ADD + "op @split(%x: tensor<NxCxf32>, K: dim) -> (%a: tensor<NxKxf32>, %b: tensor<Nx(C - K)xf32>) { where K >= 1, K < C compute { %a[n, c] = %x[n, c] %b[n, c] = %x[n, c + K] } }",
         "%x: tensor<Nx8xf32> -> %h: tensor<Nx3xf32>, %t: tensor<Nx5xf32>, %s: tensor<Nx4xf32>", "%h, %t = @split(%x) {K = 8 floordiv 2 - 1}\n%a, %b = @split(%x) {K = 4}\n%s = @add(%a, %b)"), {"x": np.arange(16).reshape(2, 8)},
         {"h": np.arange(16).reshape(2, 8)[:, :3], "t": np.arange(16).reshape(2, 8)[:, 3:], "s": np.arange(16).reshape(2, 8)[:, :4] + np.arange(16).reshape(2, 8)[:, 4:]}),
    Case("an edge read several times", "nodes in any order", program(ADD, MAIN, "\n".join(f"%e{n + 1} = @add(%e{n}, %{'x' if n % 2 else f'e{n}'})" for n in range(1, 9)) + "\n%e1 = @add(%x, %x)\n%y = @add(%e9, %e1)"), {"x": X},
         {"y": (lambda f: f(f, 9) + 2 * X)(lambda f, n: 2 * X if n == 1 else f(f, n - 1) + (X if (n - 1) % 2 else f(f, n - 1)))}),
    Case("an edge that is read again much later", "nodes in any order", program(ADD + "op @sums(%x: tensor<HxWxf32>) -> (%y: tensor<HxWxf32>) { compute { %y[h, w] = sum[i < H, j < W where i != h or j != w](%x[i, j]) } }\n",
         "%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>, %z: tensor<HxWxf32>", "%a = @sums(%x)\n%b = @sums(%a)\n%c = @sums(%b)\n%d = @sums(%c)\n%y = @add(%d, %a)\n%z = @add(%b, %a)"), {"x": X},
         (lambda f: {"y": f(f(f(f(X)))) + f(X), "z": f(f(X)) + f(X)})(lambda v: v.sum() - v)),
    Case("where of a pipeline", ("where of a pipeline", "what cannot be decided is checked at the call"), program(GAIN, MAIN, "where H mod 2 == 0, W >= 3\n%y = @gain(%x)"), {"x": X}, {"y": 2 * X}),
    Case("where of a pipeline that does not hold", "where of a pipeline", program(GAIN, MAIN, "where H mod 2 == 1\n%y = @gain(%x)"), {"x": X}, fails="H = 2"),
    Case("sums of symbols along edges", "dimensions unify along edges", program("op @pad(%x: tensor<HxWxf32>) -> (%y: tensor<(H + 2)xWxf32>) { memory { border = replicate } compute { %y[h, w] = %x[h - 1, w] } }\nop @blur(%x: tensor<HxWxf32>) -> (%y: tensor<(H - 2)xWxf32>) { where H >= 2 compute { %y[h, w] = %x[h, w] + %x[h + 2, w] } }",
         MAIN, "%p = @pad(%x)\n%y = @blur(%p)"), {"x": whole(3, 2) * 0 + [[1, 2], [3, 4], [5, 6]]}, {"y": [[4, 6], [6, 8], [8, 10]]}),
    Case("several pipelines", "several pipelines", program(GAIN, MAIN, "%y = @gain(%x)") + f"pipeline @other(%z: {HW}) -> (%w: {HW}) {{ %w = @gain(%z) {{by = 5}} }}", {"z": X}, {"w": 5 * X}, pipeline="other"),
    Case("an unused operator, an empty result list's neighbour", "several pipelines", program(GAIN + ADD, MAIN, "%y = @gain(%x)"), {"x": X}, {"y": 2 * X}),
    # ---------------------------------------------------------------------------------------------------------------------- graphs
    Case("a graph", ("graph", "attributes handed on by name"), program(GAIN + ADD + "op @blend(%a: tensor<...xf32>, %b: tensor<...xf32>, alpha: f32 = 0.5) -> (%y: tensor<...xf32>) { where alpha >= 0\n graph { %y = @add(%p, %q)\n %q = @gain(%b) {by = alpha} as second\n %p = @gain(%a) {by = 1 - alpha} as first } }",
         f"%x: {HW}, %z: {HW} -> %y: {HW}, %w: {HW}", "%y = @blend(%x, %z) {alpha = 0.25}\n%w = @blend(%x, %z)"), {"x": 4 * X, "z": 4 * Y}, {"y": 3 * X + Y, "w": 2 * X + 2 * Y}),
    Case("a graph in a graph", ("graph in graph", "attributes handed on by name"), program(GAIN + ADD + "op @two(%x: tensor<...xf32>, k: f32) -> (%y: tensor<...xf32>) { graph { %h = @gain(%x) {by = k, add = 1.0} as up\n%y = @gain(%h) {by = k} as down } }\n"
         "op @four(%x: tensor<...xf32>, k: f32 = 2.0) -> (%y: tensor<...xf32>, %z: tensor<...xf32>) { graph { %a = @two(%x) {k = k} as one\n%y = @two(%a) {k = -k} as other\n%z = %a } }", f"%x: {HW} -> %y: {HW}, %z: {HW}", "%y, %z = @four(%x) {k = 3} as all"), {"x": X},
         {"z": 9 * X + 3, "y": 9 * (9 * X + 3) - 3}),
    Case("words, dims and dtypes through a graph", "attributes of every kind through graphs", program(
        "op @tap(%x: tensor<NxT>, K: dim, edge: word in [wrap, replicate], U: dtype) -> (%y: tensor<NxU>) { memory { border = edge } compute { %y[n] = U(%x[n - K]) } }\n"
        "op @outer(%x: tensor<NxT>, M: dim = 2, mode: word in [wrap, replicate] = wrap, V: dtype = f32) -> (%y: tensor<NxV>) { graph { %a = @tap(%x) {K = M, edge = mode, U = V}\n%y = @tap(%a) {K = 1, edge = replicate, U = V} } }",
        "%x: tensor<Nxu8> -> %y: tensor<Nxf32>, %z: tensor<Nxi16>", "%y = @outer(%x)\n%z = @outer(%x) {M = 1, mode = replicate, V = i16}"), {"x": [1, 2, 3, 4]}, {"y": [3, 3, 4, 1], "z": [1, 1, 1, 2]}),
    Case("a kernel beside its meaning", "kernel with a compute", op(f"%x: {HW} -> %y: {HW}", "%y[h, w] = 2 * %x[h, w]", 'kernel cuda "double.cu" { entry = "twice", block = [256], grid = [ceildiv(H*W, 256)], shared = 0 }'), {"x": X}, {"y": 2 * X},
         files={"double.cu": 'extern "C" __global__ void twice(const pipelink::TensorView* x, pipelink::TensorView* y, const void*) {\n'
                                  '  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n'
                                  '  if (i < y->num_elements()) static_cast<float*>(y->data())[i] = 2 * static_cast<const float*>(x->data())[i];\n}\n'}),
    Case("a gradient beside its operator", "gradient", op("%x: tensor<Nxf32> -> %y: tensor<Nxf32>", "%y[n] = %x[n] * %x[n]", "gradient { %dx[n] = 2 * %x[n] * %dy[n] }"), {"x": [1, 2]}, {"y": [1, 4]}),
    # ----------------------------------------------------------------------------------------------------------------------- packs
    Case("a stack", ("[%a, %b] stacks", "three parts"), program(STACK, f"%x: {HW}, %y: {HW}, %z: {HW} -> %m: {HW}, %s: {HW}", "%m, %s = @agree([%x, %y, %z])"), {"x": X, "y": Y, "z": Z}, {"m": np.max([X, Y, Z], 0), "s": X - Z}),
    Case("a stack of one edge twice, and of u8", "a pack of u8", program(STACK, "%x: tensor<Nxu8>, %y: tensor<Nxu8> -> %m: tensor<Nxu8>, %s: tensor<Nxu8>", "%m, %s = @agree([%x, %y, %x, %y])"), {"x": [200, 3, 255], "y": [7, 100, 255]}, {"m": [200, 100, 255], "s": [193, 159, 0]}),
    Case("a join", ("[%a, %b] along C joins", "three parts"), program(SCALE, "%a: tensor<NxAxWxf32>, %b: tensor<NxBxWxf32>, %c: tensor<NxCxWxf32>, %s: tensor<(A + B + C)xf32> -> %y: tensor<Nx(A + B + C)xWxf32>", "%y = @scale([%a, %b, %c] along C, %s)"),
         {"a": A, "b": B, "c": C, "s": np.arange(6)}, {"y": np.concatenate([A, B, C], 1) * np.arange(6)[:, None]}),
    Case("joins of constant parts", "constant parts of a pack", program(SCALE, "%a: tensor<2x3x4xf32>, %b: tensor<2x1x4xf32>, %s: tensor<4xf32> -> %y: tensor<2x4x4xf32>", "%y = @scale([%b, %a] along C, %s)"), {"a": A, "b": B, "s": [1, 2, 3, 4]},
         {"y": np.concatenate([B, A], 1) * np.arange(1, 5)[:, None]}),
    Case("joins along the first and the last dimension", "[%a, %b] along C joins", program("op @same(%x: tensor<NxCxWxf32>) -> (%y: tensor<NxCxWxf32>) { compute { %y[n, c, w] = 2 * %x[n, c, w] } }", "%a: tensor<NxCxWxf32>, %b: tensor<MxCxWxf32>, %c: tensor<NxCxVxf32> -> %y: tensor<(N + M)xCxWxf32>, %z: tensor<NxCx(W + V)xf32>",
         "%y = @same([%a, %b] along N)\n%z = @same([%a, %c] along W)"), {"a": A, "b": A[:1], "c": A[:, :, :2]}, {"y": 2 * np.concatenate([A, A[:1]]), "z": 2 * np.concatenate([A, A[:, :, :2]], 2)}),
    Case("a border on a packed operand", "a border on a packed operand", program("op @tap(%x: tensor<NxWxf32>) -> (%y: tensor<NxWxf32>) { memory { border = [none, wrap] } compute { %y[n, w] = %x[n, w - 1] + 10 * %x[n, w + 2] } }", "%a: tensor<NxAxf32>, %b: tensor<NxBxf32> -> %y: tensor<Nx(A + B)xf32>", "%y = @tap([%a, %b] along W)"),
         {"a": A[:, 0], "b": A[:, 1, :2]}, {"y": (lambda p: np.roll(p, 1, 1) + 10 * np.roll(p, -2, 1))(np.concatenate([A[:, 0], A[:, 1, :2]], 1))}),
    Case("a constant border on a stack", "a border on a packed operand", program("op @next(%x: tensor<KxNxf32>) -> (%y: tensor<KxNxf32>) { memory { %x { border = constant(-1) } } compute { %y[k, n] = %x[k + 1, n - 1] } }", "%a: tensor<Nxf32>, %b: tensor<Nxf32> -> %y: tensor<2xNxf32>", "%y = @next([%a, %b])"), {"a": [1, 2, 3], "b": [4, 5, 6]},
         {"y": [[-1, 4, 5], [-1, -1, -1]]}),
    Case("a pack read at an index from data", "[%a, %b] stacks", program("op @pick(%x: tensor<KxNxf32>, %i: tensor<Nxi32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[%i[n], n] } }", "%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>, %i: tensor<Nxi32> -> %y: tensor<Nxf32>", "%y = @pick([%a, %b, %c], %i)"),
         {"a": [1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9], "i": [2, 0, 1]}, {"y": [7, 2, 6]}),
    Case("a pack into a graph", ("[%a, %b] along C joins", "graph"), program(SCALE + "op @g(%x: tensor<NxCxWxf32>, %s: tensor<Cxf32>) -> (%y: tensor<NxCxWxf32>) { graph { %y = @scale(%x, %s) } }", "%a: tensor<NxAxWxf32>, %b: tensor<NxBxWxf32>, %s: tensor<(A + B)xf32> -> %y: tensor<Nx(A + B)xWxf32>", "%y = @g([%a, %b] along C, %s)"),
         {"a": A, "b": B, "s": [1, 2, 3, 4]}, {"y": np.concatenate([A, B], 1) * np.arange(1, 5)[:, None]}),
    Case("a pack into a graph in a graph, twice, by two names", ("[%a, %b] stacks", "graph in graph"), program(STACK + ADD + "op @low(%x: tensor<Kx...xf32>) -> (%m: tensor<...xf32>, %t: tensor<...xf32>) { where K >= 1 graph { %m, %s = @agree(%x)\n%z = %x\n%n, %r = @agree(%z)\n%t = @add(%n, %r) } }\n"
         "op @high(%x: tensor<Kx...xf32>) -> (%m: tensor<...xf32>, %t: tensor<...xf32>) { where K >= 1 graph { %m, %t = @low(%x) } }", f"%x: {HW}, %y: {HW}, %z: {HW} -> %m: {HW}, %t: {HW}", "%m, %t = @high([%x, %y, %z])"), {"x": X, "y": Y, "z": Z}, {"m": np.max([X, Y, Z], 0), "t": np.max([X, Y, Z], 0) + X - Z}),
    Case("a pack of edges within", "[%a, %b] stacks", program(STACK + GAIN, f"%x: {HW} -> %m: {HW}, %s: {HW}", "%m, %s = @agree([%x, %g])\n%g = @gain(%x) {by = -1}"), {"x": X}, {"m": np.abs(X), "s": 2 * X}),
    # --------------------------------------------------------------------------------------------------------------------- modules
    Case("import std", "import std.…", program("import std.nn\n", MAIN, "%a = @relu6(%x)\n%y = @std.nn.relu6(%a)"), {"x": X}, {"y": np.clip(X, 0, 6)}),
    Case("built-ins", "@std.copy, cast, quantize, dequantize", program("", "%x: tensor<Nxf32> -> %y: tensor<Nxf32>, %h: tensor<Nxf16>, %q: tensor<Nxi8>, %d: tensor<Nxf32>", "%y = @std.copy(%x)\n%h = @std.cast(%x) {U = f16}\n%q = @std.quantize(%x) {scale = 0.5}\n%d = @std.dequantize(%q) {scale = 0.5}"),
         {"x": [0.25, 0.75, -1.25, 100]}, {"y": [0.25, 0.75, -1.25, 100], "h": [0.25, 0.75, -1.25, 100], "q": [0, 2, -2, 127], "d": [0, 1, -1, 63.5]}),
    Case("import a file", ("import a file", "@file_stem.name in full"), program('import "ops/mine.plir"\n', f"%x: {HW} -> %y: {HW}, %z: {HW}", "%y = @triple(%x)\n%z = @mine.triple(%y)"), {"x": X}, {"y": 3 * X, "z": 9 * X},
         files={"ops/mine.plir": "/// Three times.\nop @triple(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { graph { %a = @half(%x)\n%y = @half(%a) {by = 2} } }\nop @half(%x: tensor<...xf32>, by: f32 = 1.5) -> (%y: tensor<...xf32>) { compute { %y[...] = by * %x[...] } }\n"}),
    Case("imports of an import", "imports are not handed on", program('import "a.plir"\nop @b(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] + 100 } }\n', f"%x: {HW} -> %y: {HW}, %z: {HW}", "%y = @a(%x)\n%z = @b(%x)"), {"x": X}, {"y": X + 1, "z": X + 100},
         files={"a.plir": 'import "b.plir"\nop @a(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { graph { %y = @b(%x) } }', "b.plir": "op @b(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = %x[...] + 1 } }"}),
    Case("the file's own operators win", "the file's own operators win", program("import std.nn\nop @relu6(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { compute { %y[...] = -%x[...] } }\n", f"%x: {HW} -> %y: {HW}, %z: {HW}", "%y = @relu6(%x)\n%z = @std.nn.relu6(%x)"), {"x": X}, {"y": 0 - X, "z": np.clip(X, 0, 6)}, atol=1e-30),
    Case("two imports with one name", "full names tell equal ones apart", program('import "a.plir"\nimport "b.plir"\n', f"%x: {HW} -> %y: {HW}, %z: {HW}", "%y = @a.f(%x)\n%z = @b.f(%x)"), {"x": X}, {"y": X + 1, "z": X + 2},
         files={f"{n}.plir": f"op @f(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) {{ compute {{ %y[...] = %x[...] + {k} }} }}" for n, k in (("a", 1), ("b", 2))}),
    # -------------------------------------------------------------------------------------------------------------------- sections
    Case("memory", ("memory: align, contiguity, cross_device", "dtypes constrains type variables"), op("%x: tensor<NxKxT>, %z: tensor<NxKxT> -> %y: tensor<NxKxT>", "%y[n, k] = %x[n, k] + %z[n, k]", "memory { dtypes = [f16, f32], align = 64, cross_device = true, %x { contiguity = rows, align = 16 }, %z { contiguity = any }, %y { contiguity = dense, align = 128 } }",
         pipeline="%x: tensor<NxKxf32>, %z: tensor<NxKxf32> -> %y: tensor<NxKxf32>"), {"x": X, "z": Y}, {"y": X + Y}),
    Case("strided arrays", "contiguity = any", op("%a: tensor<NxKxf32>, %b: tensor<NxKxf32>, %c: tensor<NxKxf32>, %d: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%y[n, k] = %a[n, k] + 10 * %b[n, k] + 100 * %c[n, k] + 1000 * %d[n, k]", "memory { %a { contiguity = any }, %b { contiguity = any }, %c { contiguity = any } }"),
         {"a": STRIDED[::2, ::3], "b": STRIDED[3:1:-1, ::-4], "c": STRIDED.T[:2, 1:4], "d": np.broadcast_to(STRIDED[0, :3], (2, 3))}, {"y": STRIDED[::2, ::3] + 10 * STRIDED[3:1:-1, ::-4] + 100 * STRIDED.T[:2, 1:4] + 1000 * STRIDED[0, :3]}),
    Case("inplace", "inplace", program("op @f(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { memory { %y { inplace = %x } } compute { %y[...] = %x[...] + 1 } }\n" + ADD, MAIN, "%a = @f(%x)\n%b = @f(%a)\n%y = @add(%b, %x)"), {"x": X}, {"y": 2 * X + 2}),
    Case("execution", "execution", op(f"%x: {HW} -> %y: {HW}", "%y[h, w] = %x[h, w] - 1", "execution { async = true, max_streams = 4, event_sync = false, batch = H, deterministic = true }"), {"x": X}, {"y": X - 1}),
    Case("semantic", "semantic: range, color, finite", program("op @f(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { semantic { %x { range = [-10, 10], finite = true }, %y { range = [0, 1], color = linear, finite = true } } compute { %y[...] = clamp(%x[...] / 4, 0, 1) } }\n"
         "op @g(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) { semantic { %x { range = [0, 1], color = linear, finite = true } } compute { %y[...] = sqrt(%x[...]) } }", MAIN, "%a = @f(%x)\n%y = @g(%a)"), {"x": [[0, 1, 4], [-3, 9, 4]]}, {"y": [[0, 0.5, 1], [0, 1, 1]]}),
    Case("compile", "compile", op(f"%x: {HW} -> %y: {HW}", "%y[h, w] = %x[h, w] / 2", 'compile { arch = ">= sm_75", features = [fp16], toolchain = nvrtc, block = [16, 16], edges = free, accuracy = exact }'), {"x": X}, {"y": X / 2}),
    Case("downgrade", "downgrade", op(f"%x: {HW} -> %y: {HW}", "%y[h, w] = %x[h, w] * 2", "downgrade sm_75 { block = [8, 8] }\ndowngrade sm_70 unsupported"), {"x": X}, {"y": 2 * X}),
    Case("a policy for parts of a graph", ("precision = mixed", "downgrade"), program(GAIN_T + "op @g(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) { downgrade sm_75 { precision = mixed, up = f16, down = f32, budget = 0.01 }\ngraph { %a = @gain(%x) as up\n%y = @gain(%a) as down } }", "%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%y = @g(%x)"),
         {"x": X}, {"y": 4 * X}),
    *(Case(f"a policy of {name}", "a policy of an operator", program("op @f(%x: tensor<NxKxT>, %w: tensor<KxMxT>) -> (%y: tensor<NxMxT>) { memory { dtypes = [f16, bf16, f8e4m3, f32] } downgrade sm_90 { " + keys + " } compute { %y[n, m] = sum[k < K](%x[n, k] * %w[k, m]) } }",
                                                                     "%x: tensor<NxKxf32>, param %w: tensor<KxMxf32> -> %y: tensor<NxMxf32>", "%y = @f(%x, %w)"), {"x": X, "w": Y.T}, {"y": X @ Y.T})
      for name, keys in (("codes", "dtype = i8, scheme = symmetric, granularity = channel, ranges = calibrated, budget = 0.02"), ("codes with a zero point", "dtype = u8, weights = i4, scheme = affine, granularity = block(2), ranges = dynamic, force = true"),
                         ("plain f8", "dtype = f8e4m3, scheme = plain, block = 128, force = false"), ("f8 with a scale", "dtype = f8e5m2, weights = f8e4m3, granularity = tensor"), ("weights alone", "weights = i8, block = [64, 64]"),
                         ("a float", "dtype = bf16, weights = i4, library = [cublaslt, generated], block = [64, 64, 32]"))),
    Case("a library and its epilogue", ("library", "epilogue"), op("%a: tensor<MxKxf32>, %b: tensor<KxNxf32> -> %y: tensor<MxNxf32>", "%s[m, n] = sum[k < K](%a[m, k] * %b[k, n]) %y[m, n] = 0.5 * %s[m, n]", "compile { library = cublaslt }\nschedule { kernel = cublaslt, epilogue = %y }\ndowngrade sm_75 { dtype = f32, library = generated, block = [64, 64] }"),
         {"a": X, "b": Y.T}, {"y": X @ Y.T / 2}),
    Case("schedule", ("schedule", "place, at, keep"), op("%x: tensor<HxWxf32> -> %y: tensor<HxWxf32>", "%row[h, w] = %x[h, w - 1] + 2 * %x[h, w] + %x[h, w + 1] %y[h, w] = %row[h - 1, w] + 2 * %row[h, w] + %row[h + 1, w]", "memory { border = replicate }\nschedule { %row { place = register, at = h, keep = 3 } }"), {"x": X},
         {"y": (lambda p: sum((2 - abs(i - 1)) * (2 - abs(j - 1)) * p[i:i + 2, j:j + 3] for i in range(3) for j in range(3)))(np.pad(X, 1, "edge"))}),
    *(Case(f"place = {p}", "place, at, keep", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%l[n, k] = %x[n, k] * 2 + n %y[n, k] = %l[n, k] - %l[n, K - 1 - k]", f"schedule {{ %l {{ place = {p} }} }}"), {"x": X}, {"y": 2 * X - 2 * X[:, ::-1]}) for p in ("register", "inline", "buffer")),
    Case("schedule: map, beside, derived", "place, at, keep", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>", "%l[n, k] = %x[n, k] * 2 + n %y[n, k] = %l[n, k] - %l[n, K - 1 - k]", "schedule { derived = [], %l { place = buffer, beside = none }, %y { map = grid } }"), {"x": X}, {"y": 2 * X - 2 * X[:, ::-1]}),
    Case("schedule: threads, vector, flight", "place, at, keep", op(f"%x: {HW} -> %y: {HW}", "%y[h, w] = 3 * %x[h, w]", "schedule { %y { threads = 128, vector = 1, flight = 2 } }"), {"x": X}, {"y": 3 * X}),
    Case("schedule: launch", "place, at, keep", op("%x: tensor<NxKxf32> -> %y: tensor<NxKxf32>, %z: tensor<Kxf32>", "%y[n, k] = 3 * %x[n, k] %z[k] = k + 0.5", "schedule { %z { launch = %y } }"), {"x": X},
         {"y": 3 * X, "z": np.arange(X.shape[1]) + 0.5}),
    # ----------------------------------------------------------------------------------------------------------- what passes write
    Case("plan", "plan", program(GAIN + ADD, MAIN, '%a = @gain(%x) plan { stream = 0, record = 1 }\n%b = @gain(%x) {by = 3} plan { stream = 1, record = 2, %b { arena = "cpu", offset = 4096, bytes = 24 } }\n%y = @add(%a, %b) plan { stream = 0, wait = [2] }'), {"x": X}, {"y": 5 * X}),
    Case("reason and loc", ("reason", "loc"), program(GAIN, MAIN, '%c = @std.copy(%x) reason = "a staged copy"\n%y = @gain(%c) loc("elsewhere.plir":12:3)'), {"x": X}, {"y": 2 * X}),
    Case("generated names", "generated names", "op @gain.1(%x: tensor<D0xf32>) -> (%y: tensor<D0xf32>) { compute { let by = f32(2.0) %y[d0] = by * %x[d0] } }\npipeline @main(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %a.b = @gain.1(%x)\n%y = @gain.1(%a.b) }", {"x": [1, 2]}, {"y": [4, 8]}),
]
