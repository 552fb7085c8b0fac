"""Plans of memory that are written by hand: each that could lose a value, or leave its arena, is refused at the place that is wrong."""
from __future__ import annotations

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import InternalError, ProgramError, Report
from pipelink_ir.ir.nodes import Node, Section
from pipelink_ir.passes.manager import NoOptions, parse_passes, run_passes
from pipelink_ir.passes.proof.memory import MemoryProof, Scratch, happens_before
from pipelink_ir.passes.verify_plan import verify_plan

OPS = """
op @u(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + 1 } }
op @j(%a: tensor<Nxf32>, %b: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + %b[n] } }
op @s(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { border = wrap } compute { %y[n] = %a[n + 1] } }
op @h(%a: tensor<Nxf32>) -> (%y: tensor<Nxf16>) { compute { %y[n] = f16(%a[n]) } }
op @w(%a: tensor<Nxf16>) -> (%y: tensor<Nxf32>) { compute { %y[n] = f32(%a[n]) } }
op @a(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { memory { align = 1024 } compute { %y[n] = %a[n] * 2 } }
op @cat(%a: tensor<Nxf32>, %b: tensor<Mxf32>) -> (%y: tensor<(N + M)xf32>) { compute { %y[n in 0..N] = %a[n]  %y[n in N..N + M] = %b[n - N] } }
op @mix(%a: tensor<Nxf32>, %b: tensor<Mxf32>) -> (%y: tensor<(N + M)xf32>) { compute { %y[n in 0..N] = %a[N - 1 - n]  %y[n in N..N + M] = %b[n - N] } }
op @tri(%a: tensor<Nxf32>, %b: tensor<Nxf32>, %c: tensor<Nxf32>) -> (%y: tensor<(3 * N)xf32>) {
  compute { %y[n in 0..N] = %a[n]  %y[n in N..2 * N] = %b[n - N]  %y[n in 2 * N..3 * N] = %c[n - 2 * N] } }
op @half(%a: tensor<(2 * N)xf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %a[n] + %a[n + N] } }
"""


def check(body: str, results: str = "%z: tensor<64xf32>", inputs: str = "%x: tensor<64xf32>") -> tuple[str, str] | None:
    """The message about a plan and the text that it points at; None if it is let through."""
    text = OPS + f"pipeline @p({inputs}) -> ({results}) {{\n" + body + "\n}"
    try:
        run_passes(parse(text, "p.plir"), parse_passes("resolve,infer-types,verify-plan"), Report())
    except ProgramError as fault:
        first = fault.diagnostics[0]
        assert first.field in ("arena", "dependency")
        return first.message, text[first.span.start:first.span.end]
    return None


def place(edge: str, offset: int, more: str = "", size: int = 256, arena: str = "cuda:0") -> str:
    return f'%{edge} {{ arena = "{arena}", offset = {offset}, bytes = {size}{more} }}'


def two(a: str, b: str) -> str:
    return f"%a = @s(%x) plan {{ {a} }}\n%b = @s(%a) plan {{ {b} }}\n%z = @s(%b)"


def test_a_right_plan() -> None:
    assert check(two(place("a", 0), place("b", 256))) is None
    assert check(two(place("a", 0), place("b", 0, arena="cuda:1"))) is None


@pytest.mark.parametrize(("a", "b", "message", "points"), [
    (place("a", 0), place("b", 0), "share bytes", ""),
    (place("a", 0), place("b", 128), "share bytes", ""),
    (place("a", 0, size=320), place("b", 256), "share bytes", ""),
    (place("a", -64), place("b", 256), "begins before its arena", "offset = -64"),
    (place("a", 32), place("b", 512), "no multiple of 64", "offset = 32"),
    (place("a", 0, size=252), place("b", 512), "has 256 bytes, and its place has 252", "bytes = 252"),
    (place("a", 0), place("c", 512), "no result of this node", "%c {"),
    (place("a", 0), '%b { arena = "cuda:0", offset = 256 }', "no size", "%b {"),
    (place("a", 0), '%b { arena = "cuda:0", ofset = 256, bytes = 256 }', "no 'ofset'", "ofset"),
    (place("a", 0), "%b { arena = 3, offset = 256, bytes = 256 }", "written otherwise", "arena = 3"),
    (place("a", 0), "%b { offset = 256, bytes = 256 }", "in an arena or within", "%b {"),
    (place("a", 0), '%b { arena = "cuda:0", offset = N, bytes = 256 }', "is no number", "offset = N"),
    (place("a", 0), place("b", 0, ", inplace = %a"), "read after it is overwritten", "inplace = %a"),
    (place("a", 0), place("b", 256, ", inplace = %a"), "do not begin at one place", "%b {"),
    (place("a", 0), place("b", 0, ", inplace = %x"), "no operand", "inplace = %x"),
    (place("a", 0), "%b { within = %a, offset = 0, bytes = 256 }", "which no elided node makes", "within = %a")])
def test_wrong_places(a: str, b: str, message: str, points: str) -> None:
    found = check(two(a, b))
    assert found is not None
    assert message in found[0]
    assert found[1].startswith(points)


def test_a_result_of_the_pipeline_has_no_place() -> None:
    found = check(f"%z = @s(%x) plan {{ {place('z', 0)} }}")
    assert found is not None
    assert "into the caller's memory" in found[0]


def test_memory_is_used_again_in_its_time() -> None:
    body = f"%a = @s(%x) plan {{ {place('a', 0)} }}\n%b = @s(%a) plan {{ {place('b', 256)} }}\n%c = @s(%b) plan {{ {place('c', 0)} }}\n%z = "
    assert check(body + "@s(%c)") is None
    assert "share bytes" in (check(body + "@j(%c, %a)") or ("",))[0]


def test_a_byte_too_many() -> None:
    body = "%a = @s(%x) plan {{ {} }}\n%b = @s(%x) plan {{ {} }}\n%z = @j(%a, %b)"
    assert check(body.format(place("a", 0), place("b", 256))) is None
    assert check(body.format(place("a", 0, size=257), place("b", 256))) is not None
    assert check(body.format(place("a", 64), place("b", 256))) is not None


# ------------------------------------------------------------------------------------------------------------------------ in place


def taken(op: str, last: str = "%z = @s(%b)", before: str = "", args: str = "%a") -> tuple[str, str] | None:
    return check(f"%a = @s(%x) plan {{ {place('a', 0)} }}\n{before}%b = @{op}({args}) plan {{ {place('b', 0, ', inplace = %a')} }}\n{last}")


def test_what_may_be_taken_over() -> None:
    assert taken("u") is None
    assert taken("j", args="%a, %a") is None
    assert "is overwritten" in (taken("s") or ("",))[0]
    assert "may still use" in (taken("u", "%z = @j(%b, %a)") or ("",))[0]
    assert taken("u", before=f"%c = @s(%a) plan {{ {place('c', 256)} }}\n", last="%z = @j(%b, %c)") is None


def test_the_callers_memory_is_not_taken_over() -> None:
    found = check(f"%y = @s(%x)\n%b = @u(%y) plan {{ {place('b', 0, ', inplace = %y')} }}\n%z = @s(%b)", "%y: tensor<64xf32>, %z: tensor<64xf32>")
    assert found is not None
    assert "the caller's" in found[0]
    found = check(f"%b = @u(%x) plan {{ {place('b', 0, ', inplace = %x')} }}\n%z = @s(%b)")
    assert found is not None
    assert "the caller's" in found[0]


def test_elements_of_another_size_are_not_taken_over() -> None:
    found = check(f"%a = @s(%x) plan {{ {place('a', 0)} }}\n%b = @h(%a) plan {{ {place('b', 0, ', inplace = %a', 128)} }}\n%z = @w(%b)")
    assert found is not None
    assert "one holds f32, the other f16" in found[0]


def test_two_cannot_take_over_the_same_bytes() -> None:
    found = check(f"%a = @s(%x) plan {{ {place('a', 0)} }}\n%b = @u(%a) plan {{ {place('b', 0, ', inplace = %a')} }}\n"
                  f"%c = @u(%a) plan {{ {place('c', 0, ', inplace = %a')} }}\n%z = @j(%b, %c)")
    assert found is not None


def test_streams_that_are_not_ordered_do_not_share() -> None:
    body = (f"%a = @s(%x) plan {{ stream = 0, record = 1, {place('a', 0)} }}\n%c = @s(%a) plan {{ stream = 1, wait = [1], record = 2, {place('c', 256)} }}\n"
            f"%b = @u(%a) plan {{ stream = 0 WAIT, {place('b', 0, ', inplace = %a')} }}\n%z = @j(%b, %c) plan {{ stream = 0, wait = [2] }}")
    assert check(body.replace("WAIT", ", wait = [2]")) is None
    assert "may still use" in (check(body.replace("WAIT", "")) or ("",))[0]


def test_symbolic_sizes_are_proven_too() -> None:
    body = '%a = @s(%x) plan {{ %a {{ arena = "cuda:0", bytes = 4 * L }} }}\n%b = @u(%a) plan {{ %b {{ arena = "cuda:0", bytes = 4 * L, inplace = %a }} }}\n%z = {}'
    sizes = {"results": "%z: tensor<Lxf32>", "inputs": "%x: tensor<Lxf32>"}
    assert check(body.format("@s(%b)"), **sizes) is None
    assert "may still use" in (check(body.format("@j(%a, %b)"), **sizes) or ("",))[0]


# -------------------------------------------------------------------------------------------------------------------------- joins


def joined(a: str, b: str, op: str = "cat", flags: str = "elided = true", args: str = "%a, %b", more: str = "") -> tuple[str, str] | None:
    return check(f"%a = @s(%x) plan {{ %a {{ {a} }} }}\n%b = @s(%a) plan {{ %b {{ {b} }} }}\n{more}%z = @{op}({args}) plan {{ {flags} }}",
                 "%z: tensor<128xf32>" if op != "tri" else "%z: tensor<192xf32>")


A, B = "within = %z, offset = 0, bytes = 256", "within = %z, offset = 256, bytes = 256"


def test_slices() -> None:
    assert joined(A, B) is None
    assert joined(B, A, args="%b, %a") is None


@pytest.mark.parametrize(("a", "b", "more", "message"), [
    (B, A, {}, "puts it elsewhere"),
    (A, A, {}, "puts it elsewhere"),
    (A, B, {"flags": ""}, "no elided node"),
    (A, B, {"op": "mix"}, "puts it elsewhere"),
    (A, 'arena = "cuda:0", offset = 0, bytes = 256', {}, "cannot be left out"),
    (A, "within = %z, offset = 256, bytes = 252", {}, "has 256 bytes"),
    (A, "within = %z, offset = 256, bytes = 256, inplace = %a", {}, "takes over nobody's bytes"),
    (A, "within = %z, bytes = 256", {}, "at an offset")])
def test_wrong_slices(a: str, b: str, more: dict[str, str], message: str) -> None:
    found = joined(a, b, **more)
    assert found is not None
    assert message in found[0]


def test_an_operator_that_computes_is_not_left_out() -> None:
    found = check(f"%a = @s(%x) plan {{ %a {{ {A} }} }}\n%z = @u(%a) plan {{ elided = true }}")
    assert found is not None
    assert "more than to join" in found[0]


def test_slices_of_an_arena() -> None:
    body = ("%a = @s(%x) plan { %a { within = %c, offset = 0, bytes = 256 } }\n%b = @s(%a) plan { %b { within = %c, offset = 256, bytes = 256 } }\n"
            f"MORE%c = @cat(%a, %b) plan {{ elided = true, {place('c', 0, size=512)} }}\n%y = @half(%c)\n%z = @s(%LAST)")
    results = "%z: tensor<64xf32>, %y: tensor<64xf32>"
    assert check(body.replace("MORE", "").replace("LAST", "y"), results) is None
    for offset, wrong in ((256, True), (448, True), (512, False)):
        more = f"%d = @s(%b) plan {{ {place('d', offset)} }}\n"
        found = check(body.replace("MORE", more).replace("LAST", "d"), results)
        assert ("share bytes" in found[0] if found is not None else False) == wrong


def test_slices_of_symbolic_sizes() -> None:
    text = ("%a = @s(%x) plan {{ %a {{ within = %z, offset = 0, bytes = 4 * L }} }}\n%b = @s(%a) plan {{ %b {{ within = %z, offset = {}, bytes = 4 * L }} }}\n"
            "%z = @cat(%a, %b) plan {{ elided = true }}")
    sizes = {"results": "%z: tensor<(2 * L)xf32>", "inputs": "%x: tensor<Lxf32>"}
    assert check(text.format("4 * L"), **sizes) is None
    assert "elsewhere" in (check(text.format("4 * L + 64"), **sizes) or ("",))[0]
    assert "elsewhere" in (check(text.format("256"), **sizes) or ("",))[0]


# ----------------------------------------------------------------------------------------------------------------------------- more


def test_alignment_of_contracts() -> None:
    body = f"%a = @s(%x) plan {{ {place('a', 256)} }}\n%z = @a(%a)"
    assert "no multiple of 1024" in (check(body) or ("",))[0]
    assert check(body.replace("offset = 256", "offset = 2048")) is None


def test_once() -> None:
    text = "%a = @s(%w) plan {{ {} }}\n%b = @j(%a, %x) plan {{ {} }}\n%z = @s(%b)"
    inputs = "%x: tensor<64xf32>, param %w: tensor<64xf32>"
    assert check(text.format("once = true", ""), inputs=inputs) is None
    found = check(text.format("once = true", "once = true"), inputs=inputs)
    assert found is not None
    assert "'%x' is no parameter" in found[0]


def test_what_a_pass_wrote_is_our_fault() -> None:
    text = OPS + f"pipeline @p(%x: tensor<64xf32>) -> (%z: tensor<64xf32>) {{\n{two(place('a', 0), place('b', 0))}\n}}"
    from dataclasses import replace
    module = run_passes(parse(text, "p.plir"), parse_passes("resolve,infer-types"), Report())
    p = module.pipelines[0]
    nodes = tuple(replace(n, plan=Section("plan", n.plan.entries)) if isinstance(n, Node) and n.plan is not None else n for n in p.nodes)
    with pytest.raises(InternalError, match="share bytes"):
        verify_plan(replace(module, items=(*module.operators, replace(p, nodes=nodes))), NoOptions(), Report())


def test_places_of_a_call_are_proven_again() -> None:
    """What the run time packs: edges, and what a node needs while it runs."""
    text = OPS + "pipeline @p(%x: tensor<Lxf32>) -> (%z: tensor<Lxf32>) { %a = @s(%x) %b = @s(%a) %z = @s(%b) }"
    p = run_passes(parse(text, "p.plir"), parse_passes("resolve,infer-types"), Report()).pipelines[0]
    nodes = [n for n in p.nodes if isinstance(n, Node)]

    def wrong(a: int, b: int, scratch: int, total: int = 1024) -> bool:
        proof = MemoryProof(p, nodes, happens_before(p, nodes), {})
        places = {"a": ("arena", a, a + 256), "b": ("arena", b, b + 256)}
        return bool(proof.check(places, [Scratch(2, "scratch", "arena", scratch, scratch + 256, 0, 3)], {"arena": total}))

    assert not wrong(0, 256, 0)
    assert not wrong(0, 256, 512)
    assert wrong(0, 128, 512)
    assert wrong(0, 256, 256)
    assert wrong(0, 256, 512, 767)
    assert wrong(-64, 256, 512)


def test_kernels_of_one_node_run_one_after_another() -> None:
    text = OPS + "pipeline @p(%x: tensor<Lxf32>) -> (%z: tensor<Lxf32>) { %a = @s(%x) %z = @s(%a) }"
    p = run_passes(parse(text, "p.plir"), parse_passes("resolve,infer-types"), Report()).pipelines[0]
    nodes = [n for n in p.nodes if isinstance(n, Node)]

    def wrong(*scratch: tuple[int, int, int, int]) -> bool:
        items = [Scratch(node, f"t{k}", "arena", begin, begin + 256, first, last) for k, (node, begin, first, last) in enumerate(scratch)]
        return bool(MemoryProof(p, nodes, happens_before(p, nodes), {}).check({"a": ("arena", 0, 256)}, items, {"arena": 1024}))

    assert not wrong((1, 256, 0, 1), (1, 256, 2, 3))
    assert not wrong((1, 256, 2, 3), (1, 256, 0, 1))
    assert wrong((1, 256, 0, 1), (1, 256, 1, 3))
    assert wrong((1, 256, 0, 1), (1, 256, 0, 1))
    assert wrong((1, 0, 2, 3))
    assert not wrong((0, 256, 0, 9), (1, 256, 0, 9))


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_nothing_runs_by_a_plan_that_is_not_proven(target: str) -> None:
    """Also where the passes are chosen by hand."""
    import pipelink_ir as pl
    text = OPS + "pipeline @p(%x: tensor<64xf32>) -> (%z: tensor<128xf32>) { %a = @s(%x) %z = @cat(%a, %x) plan { elided = true } }"
    with pytest.raises(ProgramError, match="cannot be left out"):
        pl.compile(text, target, passes="resolve,infer-types,flatten")


@pytest.mark.parametrize("target", ["cpu", "cuda-emulated"])
def test_values_of_every_edge_are_seen_under_a_plan(target: str) -> None:
    """Edges that a plan puts into one place are apart where each of them is looked at."""
    import numpy as np

    import pipelink_ir as pl
    ops = "op @k(%a: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { semantic { %a { finite = true }, %y { range = [0, 100] } } compute { %y[n] = %a[n] + 1 } }\n"
    text = OPS + ops + ("pipeline @p(%x: tensor<64xf32>) -> (%z: tensor<64xf32>, %w: tensor<128xf32>) {\n"
                        f"%a = @s(%x) plan {{ stream = 0, {place('a', 0)} }}\n%b = @k(%a) plan {{ stream = 0, {place('b', 0, ', inplace = %a')} }}\n"
                        "%c = @s(%b) plan { stream = 0, %c { within = %w, offset = 0, bytes = 256 } }\n%z = @k(%c) plan { stream = 0 }\n"
                        "%d = @s(%c) plan { stream = 0, %d { within = %w, offset = 256, bytes = 256 } }\n"
                        "%w = @cat(%c, %d) plan { stream = 0, elided = true }\n}")
    x = np.arange(64, dtype=np.float32)
    c = np.roll(np.roll(x, -1) + 1, -1)
    for checked in (False, True):
        got = pl.compile(text, target, passes="resolve,infer-types,flatten", check_values=checked)(x=x)
        np.testing.assert_array_equal(got.z, c + 1)
        np.testing.assert_array_equal(got.w, np.concatenate([c, np.roll(c, -1)]))
    with pytest.raises(pl.ContractViolationError, match="range"):
        pl.compile(text, target, passes="resolve,infer-types,flatten", check_values=True)(x=x + 60)
