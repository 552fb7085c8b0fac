"""Prices of flat programs against sums done by hand, and which changes are kept."""
from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pipelink_ir.grammar import parse
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.gpus import GPUS
from pipelink_ir.ir.nodes import Apply, Expr, IntLit, Module, Name, Node, Operator, Range
from pipelink_ir.ir.targets import Arch, parse_arch
from pipelink_ir.passes.fusion.cost import CPU, GPU
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.precision import profit
from pipelink_ir.passes.precision.cut import Web
from pipelink_ir.passes.precision.machine import COMPUTED, MULTIPLIED, MULTIPLIED_CODES, REACHED, STREAMED, STREAMED_WIDE, machine_of
from pipelink_ir.passes.precision.price import Price, Pricer, price, size_text
from pipelink_ir.passes.precision.profit import profitable
from pipelink_ir.passes.precision.work import turns

N = 1 << 24
H200, A100, T4, HOST = Arch("cuda", 90), Arch("cuda", 80), Arch("cuda", 75), Arch("cpu")


def flat(text: str) -> Module:
    return run_passes(parse(text, "t.plir"), parse_passes("resolve,infer-types,check-contracts,flatten"), Report())


def pointwise(dtype: str, body: str = "2 * %x[n]", n: str = str(N), more: str = "") -> str:
    signature = f"(%x: tensor<{n}x{dtype}>) -> (%y: tensor<{n}x{dtype}>)"
    return f"op @f{signature} {{ {more} compute {{ %y[n] = {body} }} }}\npipeline @p{signature} {{ %y = @f(%x) }}\n"


def product(dtype: str, out: str, m: int = 4096, k: int = 4096, n: int = 4096, param: str = "") -> str:
    signature = f"(%x: tensor<{m}x{k}x{dtype}>, PARAM%w: tensor<{n}x{k}x{dtype}>) -> (%y: tensor<{m}x{n}x{out}>)"
    body = f"op @mm{signature.replace('PARAM', '')} {{ compute {{ %y[i, j] = sum[k < {k}](%x[i, k] * %w[j, k]) }} }}\n"
    return body + f"pipeline @p{signature.replace('PARAM', param)} {{ %y = @mm(%x, %w) }}\n"


@pytest.mark.parametrize("sm", sorted(GPUS))
def test_a_kernel_that_moves_bytes(sm: int) -> None:
    """A multiplication for each element, which overlaps by half with what is moved."""
    found, g = price(flat(pointwise("f32")), Arch("cuda", sm)), GPUS[sm]
    assert (found.bytes, found.operations, found.launches, found.inserted) == (2 * 4 * N, N, 1, 0)
    assert found.seconds == pytest.approx(GPU.launch + 8 * N / (REACHED * g.bandwidth) + N / (COMPUTED * g.f32) / 2)


def test_narrow_floats_move_half_and_convert() -> None:
    found = price(flat(pointwise("f16")), H200)
    assert (found.bytes, found.operations) == (2 * 2 * N, N + 0.5 * N + 0.5 * N)


def test_quotients_functions_and_casts_cost_more() -> None:
    assert price(flat(pointwise("f32", "sqrt(%x[n]) / %x[n]")), H200).operations == (4 + 3) * N
    assert price(flat(pointwise("f32", "sqrt(%x[n]) / %x[n]", more="compile { accuracy = exact }")), H200).operations == (4 + 3 + 4) * N
    assert price(flat(pointwise("f32", "%x[n] / 3", more="compile { accuracy = exact }")), H200).operations == 2 * N
    text = "op @f(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxi8>) { compute { %y[n, m] = i8(round(%x[n, m])) } }\n"
    text += "pipeline @p(%x: tensor<4096x4096xf32>) -> (%y: tensor<4096x4096xi8>) { %y = @f(%x) }\n"
    assert price(flat(text), H200).operations == (1 + 3) * N


@pytest.mark.parametrize(("dtype", "out", "arch", "rate"), [
    ("f16", "f16", T4, GPUS[75].tensor["f16"]), ("i8", "i32", T4, GPUS[75].tensor["i8"]), ("bf16", "bf16", A100, GPUS[80].tensor["bf16"]),
    ("f8e4m3", "f32", Arch("cuda", 89), GPUS[89].tensor["f8e4m3"])])
def test_products_have_the_rate_of_tensor_cores(dtype: str, out: str, arch: Arch, rate: float) -> None:
    found, sizes = price(flat(product(dtype, out)), arch), {"f16": 2, "bf16": 2, "i8": 1, "f8e4m3": 1, "f32": 4, "i32": 4}
    moved = 4096 * 4096 * (2 * sizes[dtype] + sizes[out])
    assert found.bytes == moved
    arithmetic = 2 * 4096 ** 3 / ((MULTIPLIED_CODES["mma"] if dtype == "i8" else MULTIPLIED) * rate)
    # What is beside the products is small: factors are read once for many of the other, sums are stored once.
    memory = moved / machine_of(arch).bandwidth
    assert found.seconds == pytest.approx(GPU.launch + max(arithmetic, memory) + min(arithmetic, memory) / 2, rel=0.15)


@pytest.mark.parametrize(("dtype", "out", "rounds"), [("f16", "f16", 704 / 132), ("i8", "i32", 704 / 132 + 1)])
def test_products_that_stream_take_rounds_of_tiles(dtype: str, out: str, rounds: float) -> None:
    """4096 x 4096 are 32 x 22 tiles of 128 x 192 for 132 processors; those of codes begin and end slowly, as if there were a round more."""
    found, size = price(flat(product(dtype, out)), H200), {"f16": 2, "i8": 1, "i32": 4}
    moved = 4096 * 4096 * (2 * size[dtype] + size[out])
    assert found.bytes == moved
    tile = 2 * 128 * 192 * 4096 * 132 / (STREAMED.get(dtype, STREAMED_WIDE) * GPUS[90].tensor[dtype])
    assert found.seconds == pytest.approx(GPU.launch + rounds * tile + 0.75 * moved / machine_of(H200).bandwidth, rel=0.01)


def test_small_products_do_not_stream() -> None:
    """Of 512 x 512 there are 12 tiles of 128 x 192, too few for 132 processors: the other kernel computes it, at the rate of the older instruction."""
    found = price(flat(product("f16", "f16", 512, 4096, 512)), H200)
    assert found.seconds > GPU.launch + 2 * 512 * 512 * 4096 / (0.31 * GPUS[90].tensor["f16"])


def test_which_of_several_kernels_is_called_depends_on_the_sizes() -> None:
    """Few rows are a matter of reading weights; with many, tensor cores are busy."""
    text = product("f16", "f16", 77, 4096, 4096, "param ").replace("77x", "Mx")
    few, many = (price(flat(product("f16", "f16", m, 4096, 4096, "param ")), H200).seconds for m in (8, 256))
    # A size that is not known is at least 256: that is no few rows, whose kernel comes first.
    assert price(flat(text), H200).seconds == pytest.approx(many, rel=0.25)
    assert few < many / 1.3


def test_turns_of_ranges_that_depend_on_others_are_those_of_the_middle() -> None:
    """`d < min(2048 (part + 1), 4096)` from `2048 part` on, in two parts; half of a square below its diagonal, about."""
    assert turns((Range("P", None, IntLit(2)), Range("d", _at("2048 * P"), _at("min(2048 * P + 2048, 4096)"))), {})[0] == 4096
    assert turns((Range("I", None, IntLit(1000)), Range("j", None, _at("I + 1"))), {})[0] == pytest.approx(1000 * 1000 / 2, rel=0.01)
    assert turns((Range("i", None, Name("N")), Range("j", None, Name("M"))), {"N": 7, "M": 5})[0] == 35


def _at(text: str) -> Expr:
    """An expression of indices."""
    module = parse(f"op @f(%x: tensor<Nxf32>, I: dim, P: dim) -> (%y: tensor<Nxf32>) {{ where {text} >= 0 compute {{ %y[n] = %x[n] }} }}", "t.plir")
    where = module.operators[0].where[0]
    assert isinstance(where, Apply)
    return where.args[0]


@pytest.mark.parametrize(("rows", "turns", "launches"), [(1, 16, 1), (16, 4, 2)])
def test_few_blocks_take_turns_that_wait_for_each_other(rows: int, turns: int, launches: int) -> None:
    """The largest of 4096 is found by a block of 256 threads, a turn of .4 us for 256 elements each, that of 16 x 4096 by four for each row; bytes would be over in no
    time."""
    shape = f"{rows}x4096"
    text = f"op @m(%x: tensor<{shape}xf16>) -> (%y: tensor<f16>) {{ compute {{ %y = max[i < {rows}, j < 4096](%x[i, j]) }} }}\n"
    found = price(flat(text + f"pipeline @p(%x: tensor<{shape}xf16>) -> (%y: tensor<f16>) {{ %y = @m(%x) }}\n"), H200)
    assert rows * 4096 * 2 / machine_of(H200).bandwidth < 1e-7
    assert found.seconds == pytest.approx(launches * GPU.launch + turns * 0.4e-6, rel=0.05)


def test_factors_that_are_made_element_by_element_take_steps_as_long() -> None:
    """64 rows by tiles of 64 x 64, 4096 terms in steps of 64: 64 of them, and 32 elements of the right factor for each of 128 threads. Where factors stream,
    they are made before, once."""
    whole = product("f16", "f16", 64, 4096, 4096, "param ")
    text = whole.replace("%w: tensor<4096x4096xf16>", "%w: tensor<4096x4096xi8>").replace("%w[j, k])", "f16(%w[j, k]))")
    assert price(flat(whole), A100).seconds == pytest.approx(GPU.launch + 64 * 0.77e-6, rel=0.01)
    assert price(flat(text), A100).seconds == pytest.approx(GPU.launch + 64 * (0.77e-6 + 32 * 0.2e-6), rel=0.01)
    made = price(flat(text), H200).seconds - price(flat(whole), H200).seconds
    assert made == pytest.approx(GPU.launch + 1.4 * 3 * 4096 ** 2 / machine_of(H200).bandwidth, rel=0.05)


def test_products_without_tensor_cores_have_the_plain_rate() -> None:
    found = price(flat(product("f32", "f32")), A100)
    assert found.operations == pytest.approx(2 * 4096 ** 3, rel=0.01)
    assert found.seconds > 2 * 4096 ** 3 / GPUS[80].f32
    bf16 = price(flat(product("bf16", "bf16")), T4)     # which sm_75 has no tensor cores for
    assert bf16.seconds > 10 * price(flat(product("f16", "f16")), T4).seconds


def test_what_depends_on_parameters_alone_costs_nothing() -> None:
    text = pointwise("f32").replace("pipeline @p(", "op @g(%x: tensor<Nxf32>, %w: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { compute { %y[n] = %x[n] * %w[n] } }\npipeline @p(")
    text = text.replace("pipeline @p(%x", f"pipeline @p(param %w: tensor<{N}xf32>, %x").replace("%y = @f(%x)", "%u = @f(%w)  %y = @g(%x, %u)")
    found = price(flat(text), H200)
    assert (found.bytes, found.operations, found.launches) == (3 * 4 * N, N, 1)


def test_several_kernels_and_what_the_cache_keeps() -> None:
    text = """op @sum(%x: tensor<NxKxf32>) -> (%s: tensor<Nxf32>) { compute { %s[n] = sum[k < K](%x[n, k]) } }
op @div(%x: tensor<NxKxf32>, %s: tensor<Nxf32>, %t: tensor<Kxf32>) -> (%y: tensor<NxKxf32>) { schedule { target = cuda } compute { %y[n, k] = %x[n, k] * %s[n] * %t[k] } }
pipeline @p(%x: tensor<4096x4096xf32>, %t: tensor<4096xf32>) -> (%y: tensor<4096x4096xf32>) { %s = @sum(%x)  %y = @div(%x, %s, %t) }
"""
    found = price(flat(text), H200)
    assert (found.launches, found.bytes) == (2, 4 * (N + 4096) + 4 * (2 * N + 2 * 4096))


def test_inserted_bytes_are_those_of_kernels_that_do_nothing_else() -> None:
    text = "op @q(%x: tensor<Nxf32>) -> (%y: tensor<Nxi8>) { schedule { target = cuda } compute { %y[n] = i8(round(%x[n])) } }\n"
    module = flat(text + f"pipeline @p(%x: tensor<{N}xf32>) -> (%y: tensor<{N}xi8>) {{ %y = @q(%x) }}\n")
    name = module.pipelines[0].nodes[0].op  # type: ignore[union-attr]
    assert price(module, H200, frozenset((name,))).inserted == 5 * N
    assert price(module, H200).inserted == 0


def test_the_processor() -> None:
    found = price(flat(pointwise("f32")), HOST)
    assert found.seconds == pytest.approx(CPU.launch + 8 * N / CPU.bandwidth + N / CPU.arithmetic / 2)


def test_sizes_that_are_not_known_are_large() -> None:
    """256 x 256 would be a launch and nothing else."""
    assert price(flat(pointwise("f32", n="N")), H200).bytes == 8 * 16384
    text = pointwise("f32").replace(f"{N}x", "HxWx").replace("%y[n] = 2 * %x[n]", "%y[h, w] = 2 * %x[h, w]")
    assert price(flat(text), H200).bytes == 8 * 4096 * 4096


def test_a_kernel_of_a_user_is_its_arrays(tmp_path: Any) -> None:
    (tmp_path / "k.cu").write_text("")
    text = f'op @k(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) {{ kernel cuda "{tmp_path}/k.cu" {{ entry = "k", block = [256] }} }}\n'
    found = price(flat(text + f"pipeline @p(%x: tensor<{N}xf32>) -> (%y: tensor<{N}xf32>) {{ %y = @k(%x) }}\n"), H200)
    assert (found.bytes, found.operations, found.launches) == (8 * N, 0, 1)


def test_texts() -> None:
    assert [size_text(n) for n in (17, 1700, 12.6e6, 3e9)] == ["17 bytes", "1.7 KB", "12.6 MB", "3 GB"]
    text = Price(41.2e-6, 12.6e6, 5e9, 3, 3.1e6).instead_of(Price(38e-6, 10.1e6, 5e9, 1))
    assert text == "41.2 us instead of 38 us, 12.6 MB instead of 10.1 MB, of which 3.1 MB convert, quantise and bring back"
    assert Price(1e-6, 5.0, 3e9).instead_of(Price(2e-6, 5.0, 1e9)) == "1 us instead of 2 us, 5 bytes instead of 5 bytes, 3 G operations instead of 1 G"


# ------------------------------------------------------------------------------------------------------------------ what is kept


def lowered(text: str, arch: str, options: str = "") -> Module:
    """The program after `lower-precision`."""
    return run_passes(parse(text, "t.plir"), parse_passes(f"resolve,infer-types,check-contracts,push-policies{{arch={arch}}},flatten,lower-precision{{arch={arch}{options}}}"), Report())


def reasons(module: Module) -> str:
    return " | ".join(n.reason or "" for p in module.pipelines for n in p.nodes if isinstance(n, Node))


GELU = "0.5 * %x[n] * (1 + tanh(0.7978845608 * (%x[n] + 0.044715 * %x[n]**3)))"


def test_floats_of_half_the_bytes_are_kept_and_say_what_they_save() -> None:
    text = "op @g(%x: tensor<NxT>) -> (%y: tensor<NxT>) { memory { dtypes = [f16, f32] } downgrade sm_90 { dtype = f16 } compute { %y[n] = 2 * %x[n] } }\n"
    nodes = "".join(f"  %{b} = @g(%{a})\n" for a, b in (("x", "a"), ("a", "b"), ("b", "y")))
    one = lowered(f"{text}pipeline @p(%x: tensor<{N}xf32>) -> (%y: tensor<{N}xf32>) {{\n{nodes}}}\n", "sm_90")
    # Fused, all three move what one moves: there is nothing to save.
    assert "declined" in reasons(one)
    assert "us instead of" in reasons(one)


def test_a_product_of_codes_is_kept_where_it_is_bound_by_products() -> None:
    text = """op @linear(%x: tensor<MxKxf16>, %w: tensor<KxNxf16>) -> (%y: tensor<MxNxf16>) { downgrade sm_90 { dtype = i8, ranges = dynamic FORCE } compute { %y[i, j] = sum[k < K](%x[i, k] * %w[k, j]) } }
pipeline @p(%x: tensor<ROWSx4096xf16>, param %w: tensor<4096x16384xf16>) -> (%y: tensor<ROWSx16384xf16>) { %y = @linear(%x, %w) }
"""
    large = reasons(lowered(text.replace("ROWS", "8192").replace("FORCE", ""), "sm_90"))
    assert "lowered:" in large
    small = reasons(lowered(text.replace("ROWS", "256").replace("FORCE", "").replace("4096", "256").replace("16384", "256"), "sm_90"))
    assert "declined: i8 does not pay: " in small
    assert "convert, quantise and bring back" in small
    assert "lowered:" not in small
    assert "no calibration" not in small
    # The clause leaves open where ranges come from, and nothing has measured them: that is part of what it costs.
    unmeasured = reasons(lowered(text.replace("ROWS", "256").replace(", ranges = dynamic FORCE", "").replace("4096", "256").replace("16384", "256"), "sm_90"))
    assert "its ranges are found at each call since there is no calibration: pipelinkc calibrate makes one" in unmeasured
    forced = reasons(lowered(text.replace("ROWS", "256").replace("FORCE", ", force = true").replace("4096", "256").replace("16384", "256"), "sm_90"))
    assert "lowered:" in forced


# A stand-in for lowering: `@wide` becomes `@half` of half the bytes, between two casts.

WIDE = """op @wide(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf32>) { memory { %x { border = constant(0) } } schedule { target = cuda } compute { %y[n, m] = %x[n, m] + 1 } }
op @half(%x: tensor<NxMxf16>) -> (%y: tensor<NxMxf16>) { schedule { target = cuda } compute { %y[n, m] = %x[n, m] + 1 } }
op @down(%x: tensor<NxMxf32>) -> (%y: tensor<NxMxf16>) { schedule { target = cuda } compute { %y[n, m] = %x[n, m] } }
op @up(%x: tensor<NxMxf16>) -> (%y: tensor<NxMxf32>) { schedule { target = cuda } compute { %y[n, m] = %x[n, m] } }
pipeline @all(%x: tensor<4096x4096xf32>, %z: tensor<4096x4096xf16>) -> (%y: tensor<4096x4096xf32>, %a: tensor<4096x4096xf16>, %b: tensor<4096x4096xf16>, %c: tensor<4096x4096xf32>) {
  %y = @wide(%x)  %a = @half(%z)  %b = @down(%x)  %c = @up(%z)
}
"""


def chain(count: int) -> tuple[Module, dict[str, Operator]]:
    """Nodes `e1` to `eN`, one behind the other; nothing is fused, since each has a schedule."""
    module = flat(WIDE)
    operators = {o.name.split(".")[0]: o for o in module.operators}
    p = module.pipelines[0]
    node = next(n for n in p.nodes if isinstance(n, Node) and n.op.startswith("wide"))
    edges = ["x", *(f"e{k}" for k in range(1, count + 1))]
    from pipelink_ir.ir.nodes import Edge
    nodes = tuple(replace(node, args=(Edge(a),), results=(Edge(b),)) for a, b in pairwise(edges))
    p = replace(p, params=p.params[:1], results=(replace(p.results[0], name=edges[-1]),), nodes=nodes)
    return replace(module, items=(*module.operators, p)), operators


def stand_in(operators: dict[str, Operator]) -> tuple[Any, list[int]]:
    """`lower` for a chain, and how many nodes it was asked for."""
    from pipelink_ir.ir.nodes import Edge, TensorType
    asked: list[int] = []

    def lower(module: Module, kept: frozenset[str]) -> Module:
        p, out = module.pipelines[0], []
        types = {o.name: o.type for o in p.inputs} | {e.name: t for n in p.nodes if isinstance(n, Node) for e, t in zip(n.results, n.types, strict=True)}
        halves: dict[str, str] = {}

        def half(t: TensorType) -> TensorType:
            return replace(t, dtype="f16")
        asked.append(len(p.nodes))
        for n in p.nodes:
            assert isinstance(n, Node)
            name, arg = n.results[0].name, n.args[0].name  # type: ignore[union-attr]
            if name not in kept:
                out.append(n)
                continue
            if arg not in halves:
                halves[arg] = f"{arg}.f16"
                out.append(replace(n, op=operators["down"].name, results=(Edge(halves[arg]),), types=(half(types[arg]),), reason="cast: down"))
            halves[name] = f"{name}.f16"
            out.append(replace(n, op=operators["half"].name, args=(Edge(halves[arg]),), results=(Edge(halves[name]),), types=(half(types[name]),), reason="lowered: half"))
            out.append(replace(n, op=operators["up"].name, args=(Edge(halves[name]),), reason="cast: up"))
        return replace(module, items=(*module.operators, replace(p, nodes=tuple(out))))
    return lower, asked


@pytest.mark.parametrize(("count", "kept"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 5), (8, 8)])
def test_a_chain_pays_for_its_casts_at_both_ends(count: int, kept: int) -> None:
    """Wide each node moves 8 bytes an element, half 4, and each cast 6: 8n against 4n + 12: three nodes gain nothing, four too little to be sure of."""
    module, operators = chain(count)
    lower, _ = stand_in(operators)
    names = frozenset(f"e{k}" for k in range(1, count + 1))
    found = profitable(module, names, lower, H200)
    assert len(found.kept) == kept
    assert {name for r in found.regions for name in r.names} == names
    assert all("MB convert, quantise and bring back" in r.sums for r in found.regions)


def test_what_is_forced_is_kept() -> None:
    module, operators = chain(1)
    lower, _ = stand_in(operators)
    assert profitable(module, frozenset(("e1",)), lower, H200, frozenset(("e1",))).kept == {"e1"}


def test_what_is_beside_something_forced_finds_its_casts_there() -> None:
    """With the second forced, casts are paid for: 8 + 6 + 4 + 6 against 6 + 4 + 4 + 6."""
    module, operators = chain(2)
    lower, _ = stand_in(operators)
    assert profitable(module, frozenset(("e1", "e2")), lower, H200, frozenset(("e2",))).kept == {"e1", "e2"}


def test_long_chains_are_weighed_in_pieces_of_which_equal_ones_are_priced_once() -> None:
    module, operators = chain(2000)
    lower, asked = stand_in(operators)
    begin = time.perf_counter()
    found = profitable(module, frozenset(f"e{k}" for k in range(1, 2001)), lower, H200)
    assert len(found.kept) == 2000
    assert sum(asked) < 3 * 2000
    assert time.perf_counter() - begin < 60


def test_when_no_effort_is_left_what_remains_is_kept_or_not_as_one() -> None:
    for count, kept in ((3, 0), (40, 40)):
        module, operators = chain(count)
        lower, _ = stand_in(operators)
        search = profit._Search(module, Web.of(module.pipelines[0]), frozenset(f"e{k}" for k in range(1, count + 1)), lower, Pricer(H200), frozenset(), effort=0)
        assert len(search.run().kept) == kept


def test_cut_pipelines_keep_what_is_asked_for_outside() -> None:
    module, _ = chain(6)
    web = Web.of(module.pipelines[0])
    part = web.cut([2, 3])
    assert ([o.name for o in part.inputs], [o.name for o in part.results], len(part.nodes)) == (["e2"], ["e4"], 2)
    assert web.around([2], 2) == {0, 1, 2, 3, 4}
    assert parse_arch("sm_90") == H200
