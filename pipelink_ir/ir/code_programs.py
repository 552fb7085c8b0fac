"""For every code a short program that gets it and one that does not: what `pipelinkc explain` prints, and what a test feeds to `check`."""
from __future__ import annotations

_RELU = """\
op @relu(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) {
  compute { %y[...] = max(%x[...], 0) }
}
"""

_ADD = """\
op @add(%a: tensor<...xCxf32>, %b: tensor<...xCxf32>) -> (%y: tensor<...xCxf32>) {
  compute { %y[..., c] = %a[..., c] + %b[..., c] }
}
"""

_GAMMA = """\
op @gamma(%x: tensor<...xf32>, gamma: f32 = 2.2) -> (%y: tensor<...xf32>) {
  compute { %y[...] = clamp(%x[...], 0, 1) ** (1 / gamma) }
}
"""


def _pair(common: str, wrong: str, right: str) -> tuple[str, str]:
    return common + wrong, common + right


def _swap(program: str, wrong: str, right: str) -> tuple[str, str]:
    """A program that has a hole `<>`, filled in two ways."""
    assert program.count("<>") == 1, program
    return program.replace("<>", wrong), program.replace("<>", right)


def _act(params: str = "%x: tensor<NxKxf32>", body: str = "  %y = @relu(%x)\n", results: str = "%y: tensor<NxKxf32>") -> str:
    return f"pipeline @act({params}) -> ({results}) {{\n{body}}}\n"


_LINEAR = """\
op @linear(%x: tensor<NxKxf16>, %w: tensor<KxMxf16>) -> (%y: tensor<NxMxf16>) {
  <>
  compute { %y[n, j] = sum[k < K](%x[n, k] * %w[k, j]) }
}
target @t4 { arch = sm_75 }
pipeline @project(%x: tensor<NxKxf16>, param %w: tensor<KxMxf16>) -> (%y: tensor<NxMxf16>) {
  %y = @linear(%x, %w)
}
"""

_PASS_ON = """\
op @first(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  <1>
  compute { %y[n, k] = %x[n, k] }
}
op @second(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  <2>
  compute { %y[n, k] = %x[n, k] }
}
pipeline @both(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32>) {
  %m = @first(%x)
  %y = @second(%m)
}
"""


def _edge(wrong: tuple[str, str], right: tuple[str, str]) -> tuple[str, str]:
    """Two operators whose contracts meet at an edge."""
    return (_PASS_ON.replace("<1>", wrong[0]).replace("<2>", wrong[1]), _PASS_ON.replace("<1>", right[0]).replace("<2>", right[1]))


def _one(contract: str, body: str, x: str = "HxW", y: str = "HxW") -> str:
    """One operator on f32 with a contract, and a pipeline that calls it."""
    lines = "".join(f"  {line}\n" for line in (contract, f"compute {{ {body} }}") if line)
    return (f"op @work(%x: tensor<{x}xf32>) -> (%y: tensor<{y}xf32>) {{\n{lines}}}\n"
            f"pipeline @main(%x: tensor<{x}xf32>) -> (%y: tensor<{y}xf32>) {{\n  %y = @work(%x)\n}}\n")


_TAP = "%y[h, w] = mean[i < 3](%x[h, w + i - 1])"

PROGRAMS: dict[str, tuple[str, str]] = {
    "PL1001": _pair("", "op @relu(%x: tensor<Nxf32>) (%y: tensor<Nxf32>) {\n  compute { %y[n] = max(%x[n], 0) }\n}\n",
                    "op @relu(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {\n  compute { %y[n] = max(%x[n], 0) }\n}\n"),
    "PL1101": _pair(_RELU, _act(body="  %y = @rellu(%x)\n"), _act()),
    "PL1201": (_RELU + _RELU + _act(), _RELU + _act()),
    "PL1301": ("import std.imagery\n" + _RELU + _act(), _RELU + _act()),
    "PL2001": _pair(_ADD, _act(body="  %y = @add(%x)\n"), _act(body="  %y = @add(%x, %x)\n")),
    "PL2101": _pair(_GAMMA, _act(body="  %y = @gamma(%x) {gama = 1.8}\n"), _act(body="  %y = @gamma(%x) {gamma = 1.8}\n")),
    "PL2201": _pair(_RELU, _act(params="%x: tensor<NxKxu8>"),
                    _act(params="%x: tensor<NxKxu8>", body="  %f = @std.cast(%x) {U = f32}\n  %y = @relu(%f)\n")),
    "PL2301": _pair(_ADD, _act(params="%x: tensor<NxKxf32>, %b: tensor<Kxf32>", body="  %y = @add(%x, %b)\n"),
                    _act(params="%x: tensor<NxKxf32>, %b: tensor<NxKxf32>", body="  %y = @add(%x, %b)\n")),
    "PL2401": _pair(_ADD, _act(params="%x: tensor<NxKxf32>, %b: tensor<Nx(K + 1)xf32>", body="  %y = @add(%x, %b)\n"),
                    _act(params="%x: tensor<NxKxf32>, %b: tensor<NxKxf32>", body="  %y = @add(%x, %b)\n")),
    "PL2501": (_one("", _TAP), _one("memory  { border = replicate }", _TAP)),
    "PL2601": (_one("", "%y[0, w] = %x[0, w]  %y[h < H, w] = %x[h, w] + 0.5 * %y[h + 1, w]"),
               _one("", "%y[0, w] = %x[0, w]  %y[h < H, w] = %x[h, w] + 0.5 * %y[h - 1, w]")),
    "PL2701": _pair(_RELU + _ADD, _act(body="  %s = @add(%x, %r)\n  %r = @relu(%s)\n  %y = @relu(%r)\n"),
                    _act(body="  %r = @relu(%x)\n  %s = @add(%x, %r)\n  %y = @relu(%s)\n")),
    "PL2702": _pair(_RELU + _ADD, _act(body="  %a = @relu(%x) after %b\n  %b = @relu(%a)\n  %y = @add(%a, %b)\n"),
                    _act(body="  %a = @relu(%x)\n  %b = @relu(%x) after %a\n  %y = @add(%a, %b)\n")),
    "PL2801": _pair(_RELU, _act(results="%y: tensor<NxKxf32>, %z: tensor<NxKxf32>"),
                    _act(results="%y: tensor<NxKxf32>, %z: tensor<NxKxf32>", body="  %y = @relu(%x)\n  %z = @relu(%y)\n")),
    "PL2901": _swap("op @square(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) {\n  compute  { %y[...] = %x[...] ** 2 }\n"
                    "  gradient { <>[...] = 2 * %x[...] * %dy[...] }\n}\n" + _act(body="  %y = @square(%x)\n"), "%dz", "%dx"),
    "PL3001": _swap("op @first(%x: tensor<NxKxf32>) -> (%y: tensor<NxKxf32, NC>) {\n  compute { %y[n, k] = %x[n, k] }\n}\n"
                    "op @second(%x: tensor<NxKxf32, <>>) -> (%y: tensor<NxKxf32>) {\n  compute { %y[n, k] = %x[n, k] }\n}\n"
                    + _act(body="  %m = @first(%x)\n  %y = @second(%m)\n"), "CN", "NC"),
    "PL3101": _edge(("memory  { %y { align = 16 } }", "memory  { %x { align = 128 } }"), ("memory  { %y { align = 128 } }", "memory  { %x { align = 128 } }")),
    "PL3201": ("op @box3(%x: tensor<Wxf32>) -> (%y: tensor<(W - 2)xf32>) {\n  where W >= 3\n  memory  { padding = same }\n"
               "  compute { %y[w] = mean[i < 3](%x[w + i]) }\n}\npipeline @smooth(%x: tensor<64xf32>) -> (%y: tensor<62xf32>) {\n  %y = @box3(%x)\n}\n",
               "op @box3(%x: tensor<Wxf32>) -> (%y: tensor<(W - 2)xf32>) {\n  where W >= 3\n  memory  { padding = valid }\n"
               "  compute { %y[w] = mean[i < 3](%x[w + i]) }\n}\npipeline @smooth(%x: tensor<64xf32>) -> (%y: tensor<62xf32>) {\n  %y = @box3(%x)\n}\n"),
    "PL3301": (_one("memory  { border = constant }", _TAP), _one("memory  { border = constant(0) }", _TAP)),
    "PL3401": _edge(("memory  { %y { contiguity = any } }", "memory  { %x { contiguity = dense } }"),
                    ("memory  { %y { contiguity = dense } }", "memory  { %x { contiguity = dense } }")),
    "PL3501": _swap("op @invert(%x: tensor<...xf32>) -> (%y: tensor<...xf32>) {\n  memory  { cross_device = false }\n"
                    "  compute { %y[...] = 1 - %x[...] }\n}\n"
                    + _act(body="  %m = @invert(%x) on cuda:0\n  %y = @invert(%m) on cuda:<>\n"), "1", "0"),
    "PL3601": ("op @widen(%x: tensor<NxKxu8>) -> (%y: tensor<NxKxf32>) {\n  memory  { %y { inplace = %x } }\n  compute { %y[n, k] = %x[n, k] / 255 }\n}\n"
               + _act(params="%x: tensor<NxKxu8>", body="  %y = @widen(%x)\n"),
               "op @widen(%x: tensor<NxKxu8>) -> (%y: tensor<NxKxf32>) {\n  compute { %y[n, k] = %x[n, k] / 255 }\n}\n"
               + _act(params="%x: tensor<NxKxu8>", body="  %y = @widen(%x)\n")),
    "PL3701": _edge(("semantic { %y { range = [0, 255] } }", "semantic { %x { range = [0, 1] } }"),
                    ("semantic { %y { range = [0, 1] } }", "semantic { %x { range = [0, 1] } }")),
    "PL3801": _edge(("semantic { %y { color = srgb } }", "semantic { %x { color = linear } }"),
                    ("semantic { %y { color = linear } }", "semantic { %x { color = linear } }")),
    "PL3901": _edge(("semantic { %y { finite = false } }", "semantic { %x { finite = true } }"),
                    ("semantic { %y { finite = true } }", "semantic { %x { finite = true } }")),
    "PL4001": _swap(_LINEAR.replace("<>", "compile { arch = \">= sm_80\" }<>").replace("%w: tensor<KxMxf16>) -> (%y: tensor<NxMxf16>) {\n  %y",
                                                                                    "%w: tensor<KxMxf16>) -> (%y: tensor<NxMxf16>) on cuda:0 {\n  %y"),
                    "", "\n  downgrade sm_75 { dtype = i8, budget = 2e-2 }"),
    "PL4101": _swap(_LINEAR, "compile { library = [cublastl, generated] }", "compile { library = [cublaslt, generated] }"),
    "PL4201": _swap(_LINEAR, "downgrade sm_75 { dtype = f64 }", "downgrade sm_75 { dtype = i8, budget = 2e-2 }"),
    "PL4301": _swap(_LINEAR, "downgrade sm_75 { dtype = i8, budget = -1e-2 }", "downgrade sm_75 { dtype = i8, budget = 2e-2 }"),
    "PL4302": _swap(_LINEAR, "downgrade sm_75 { weights = i4, budget = 2e-2, force = true }", "downgrade sm_75 { weights = i8, budget = 2e-2, force = true }"),
    "PL4401": _swap(_RELU + "target @t4 { arch = <> }\n" + _act(), "turing", "sm_75"),
    "PL5001": (_one("execution { max_streams = 0 }", "%y[h, w] = -%x[h, w]"), _one("execution { max_streams = 4 }", "%y[h, w] = -%x[h, w]")),
    "PL5101": (_one("execution { batch = N }", "%y[c] = mean[n < N](%x[n, c])", "NxC", "C"),
               _one("execution { batch = N }", "%y[n] = mean[c < C](%x[n, c])", "NxC", "N")),
    "PL5201": _swap(_RELU + "target @host { arch = cpu }\n" + _act(body="  %y = @relu(%x)<>\n"), " on cuda:0", ""),
    "PL6101": ("op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {\n  compute { %y[m] = %x[%i[m]] }\n}\n",
               "op @gather(%x: tensor<Nxf32>, %i: tensor<Mxi32>) -> (%y: tensor<Mxf32>) {\n  memory  { %x { border = constant(0) } }\n"
               "  compute { %y[m] = %x[%i[m]] }\n}\n"),
}
"""(wrong, right) by code. Codes about arrays, files and the command have none."""
