"""Schedules that nobody would write: places, kinds of kernels and neighbours drawn at random, whatever of them is legal. None may change a result."""
from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import pipelink_ir
from pipelink_ir.grammar import parse, print_module
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.nodes import Apply, IntLit, Module, Name, Operator, Read, Scoped, Setting, Value
from pipelink_ir.ir.typed import Tensor
from pipelink_ir.passes.infer.operator import typed_operator
from pipelink_ir.passes.manager import parse_passes, run_passes
from pipelink_ir.passes.scheduling.asked import with_entries
from pipelink_ir.passes.scheduling.printed import scheduled
from pipelink_ir.runtime.compile import read
from tests.cases.stored import HERE, PROGRAMS, stored
from tests.emulated import NEEDS_COMPILER, lowered, prepare

SEEDS = range(2)
DRAWN = [n for n in PROGRAMS if n != "extern_sobel"]
PLAYED = [(n, k % len(SEEDS)) for k, n in enumerate(DRAWN)]
"""Kernels take the host's compiler a second each: each program has one schedule that is played."""
PLACES = {"cpu": ("inline", "row", "buffer"), "cuda": ("inline", "shared", "buffer")}
KINDS = ("grid", "block", "block", "product", "turn", "window", "mma")


def _drawn(rng: random.Random, t: Tensor, others: list[str], device: str) -> Iterator[Setting]:
    """Some settings of one definition."""
    if t.kind == "local" and rng.random() < 0.7:
        yield Setting("place", Name(rng.choice(PLACES[device])))
    if others and rng.random() < 0.5:
        yield Setting("beside", Read(rng.choice(others)) if rng.random() < 0.5 else Name("none"))
    if device == "cuda" and rng.random() < 0.7:
        kind = rng.choice(KINDS)
        axes = sorted(rng.sample(range(len(t.shape)), rng.randint(0, len(t.shape))))
        value: Value = Apply("block", tuple(map(IntLit, axes))) if kind == "block" and rng.random() < 0.8 else Name(kind)
        yield Setting("map", value)


def _scheduled(op: Operator, rng: random.Random, device: str) -> Operator:
    """An operator with a schedule drawn at random, without what is objected to."""
    if op.compute is None or op.kernel is not None or any(o.type.dims and "?" in str(o.type.dims) for o in op.operands):
        return op
    typed = typed_operator(op)
    names = {getattr(d, "tensor", None) for d in op.compute.body}
    order = [typed.tensors[n] for g in typed.order for n in g.tensors if n in names]
    entries = [Scoped(t.name, tuple(s)) for k, t in enumerate(order) if (s := list(_drawn(rng, t, [o.name for o in order[:k]], device)))]
    while True:
        new = with_entries(op, device, entries)
        wrong = {id(o.setting) for o in scheduled(new, device).objections}
        if not wrong:
            return new
        entries = [replace(e, settings=tuple(s for s in e.settings if id(s) not in wrong)) for e in entries]
        entries = [e for e in entries if e.settings]


@functools.cache
def _text(name: str, device: str, seed: int) -> str:
    """A program with a schedule at each operator, of what was fused or of what was written, derived or not."""
    rng = random.Random(f"{name} {device} {seed}")
    passes = "resolve,infer-types,check-contracts,place-devices,flatten,simplify" + rng.choice(["", f",fuse{{device={device}}}"])
    passes += rng.choice(["", f",derive{{device={device}}}"])
    module = run_passes(read(HERE / f"{name}.plir"), parse_passes(passes), Report())
    return print_module(replace(module, items=tuple(_scheduled(i, rng, device) if isinstance(i, Operator) and not _clashes(i) else i for i in module.items)))


def _clashes(op: Operator) -> bool:
    """Whether an operator has a schedule that speaks to this target already."""
    return any(s.name == "schedule" and any(isinstance(e, Scoped) for e in s.entries) for s in op.sections)


@functools.cache
def _compile_for_emulation() -> None:
    """The kernels of all programs at once."""
    prepare(lowered(parse(_text(name, "cuda", seed), str(HERE / f"{name}.plir"))) for name, seed in PLAYED)


@pytest.mark.parametrize(("name", "seed", "target"), [
    *((n, seed, "cpu") for n in DRAWN for seed in SEEDS), *(pytest.param(*played, "cuda-emulated", marks=NEEDS_COMPILER) for played in PLAYED)])
def test_results(name: str, seed: int, target: str, tmp_path: Path) -> None:
    if target != "cpu":
        _compile_for_emulation()
    device = "cpu" if target == "cpu" else "cuda"
    path = tmp_path / f"{name}.plir"
    path.write_text(_text(name, device, seed), encoding="utf-8")
    case = stored(name)
    assert not case.wrong(dict(pipelink_ir.compile(path, target=target)(**case.inputs).items())), path.read_text(encoding="utf-8")


def test_many_settings_are_legal() -> None:
    """What is drawn is not dropped for the most part."""
    for device in ("cpu", "cuda"):
        modules: list[Module] = [parse(_text(name, device, seed), "drawn.plir") for name in DRAWN for seed in SEEDS]
        settings = [s for m in modules for o in m.operators for x in o.sections if x.name == "schedule" for e in x.entries if isinstance(e, Scoped)
                    for s in e.settings]
        for key in ("place", "beside", *(("map",) if device == "cuda" else ())):
            assert sum(s.key == key for s in settings) > 10, (device, key)
