"""Small kernels of the loop form, and programs as CUDA, for the tests of this folder."""
from __future__ import annotations

from pathlib import Path

from pipelink_ir.backends.cuda.compile import PipelineCode, compile_pipeline
from pipelink_ir.backends.cuda.emit import KernelCode, emit_program
from pipelink_ir.backends.loops.form import Block, Buffer, Const, Expr, For, Kernel, Load, Op, Program, Ref, Site, Store
from pipelink_ir.ir.diagnostics import Report
from pipelink_ir.ir.dtypes import BOOL, F32, I64, DType
from pipelink_ir.ir.nodes import Module
from pipelink_ir.ir.source import NOWHERE
from pipelink_ir.ir.targets import Arch

ROOT = Path(__file__).resolve().parents[3]
N, ZERO, ONE = Ref("N", I64), Const(0, I64), Const(1, I64)
I = Ref("i", I64)
SM90 = Arch("cuda", 90)


def i64(value: int) -> Const:
    return Const(value, I64)


def f32(value: float) -> Const:
    return Const(value, F32)


def op(fn: str, *args: Expr, dtype: DType | None = None) -> Op:
    compares = fn in ("==", "!=", "<", "<=", ">", ">=", "isnan", "isinf")
    return Op(fn, args, dtype or (BOOL if compares else args[0].dtype))


def load(buffer: str, memory: DType = F32, index: Expr = I) -> Load:
    return Load(buffer, index, memory, memory.compute)


def buffer(name: str, memory: DType = F32, kind: str = "operand") -> Buffer:
    return Buffer(name, kind, memory, (N,))


def grid(*body: object, hi: Expr = N) -> For:
    return For("i", ZERO, hi, ONE, tuple(body), "grid")  # type: ignore[arg-type]


def kernel(body: Block | For, *buffers: Buffer, scalars: tuple[tuple[str, DType], ...] = (), symbols: tuple[str, ...] = ("N",), name: str = "test.y",
           exact: bool = False, fast: bool = False, threads: int = 0) -> Kernel:
    block = body if isinstance(body, tuple) else (body,)
    return Kernel(name, buffers or (buffer("x"), buffer("y", kind="result")), symbols, scalars, block, exact, fast, "gpu", threads)


def program(*kernels: Kernel, name: str = "test") -> Program:
    return Program(name, kernels, (), (), (), ("N",), (), (Site(NOWHERE, "bad {0}"),))


def emitted(k: Kernel) -> str:
    """The text of one kernel without the head of the file."""
    return emit_program(program(k)).text.split("using namespace pl::types;\n", 1)[1]


def code(k: Kernel) -> KernelCode:
    return emit_program(program(k)).kernels[0]


def value(x: Expr, memory: DType = F32, exact: bool = False, fast: bool = False, scalars: tuple[tuple[str, DType], ...] = (),
          loads: DType = F32) -> str:
    """How `x` is spelled, stored into `memory`."""
    k = kernel(grid(Store("y", I, x, memory)), buffer("x", loads), buffer("y", memory, "result"), exact=exact, fast=fast, scalars=scalars)
    line = next(line for line in emitted(k).splitlines() if line.strip().startswith("y["))
    return line.split(" = ", 1)[1].removesuffix(";")


def prepared(path: Path | str, text: str | None = None) -> Module:
    """A program after the passes that a backend needs."""
    from pipelink_ir.grammar import parse
    from pipelink_ir.passes.manager import parse_passes, run_passes
    module = parse(Path(path).read_text(encoding="utf-8") if text is None else text, str(path))
    return run_passes(module, parse_passes("cpu"), Report(), ())


def pipelines(path: Path | str, text: str | None = None, arch: Arch = SM90) -> list[PipelineCode]:
    module = prepared(path, text)
    return [compile_pipeline(module, p.name, arch) for p in module.pipelines]
