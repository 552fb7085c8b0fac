"""Arrays for the inputs of a pipeline where none are given: what `pipelinkc bench` and `--tune` measure on."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.evaluate import CannotEvaluate, evaluate_int
from pipelink_ir.ir.nodes import Operand
from pipelink_ir.ir.walk import names_in
from pipelink_ir.runtime.runnable import Runnable


def made_inputs(compiled: Runnable, given: Mapping[str, Any], sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """An array for each input: those that are given, and random ones for the others, of the sizes that the given ones and `sizes` say."""
    import numpy as np
    env: dict[str, int] = {}
    for operand in compiled.inputs:
        if operand.name in given:
            _bind(operand, np.shape(given[operand.name]), env)
            for name in sizes.keys() & env.keys():
                if env[name] != sizes[name]:
                    shape = list(np.shape(given[operand.name]))
                    raise UsageError(f"--size: {name} is {sizes[name]}, but {env[name]} in the array for '%{operand.name}', {shape}")
    known = {n for o in compiled.inputs for d in o.type.dims for n in names_in(d)}
    for name in sizes.keys() - known:
        raise UsageError(f"'@{compiled.pipeline.name}' has no size '{name}' in its inputs; it has {', '.join(sorted(known)) or 'none'}")
    env |= sizes
    missing = [n for n in dict.fromkeys(n for o in compiled.inputs if o.name not in given for d in o.type.dims for n in sorted(names_in(d))) if n not in env]
    if missing:
        which = "size" if len(missing) == 1 else "sizes"
        raise UsageError(f"the {which} {', '.join(missing)} of '@{compiled.pipeline.name}' must be given: --size {','.join(f'{n}=256' for n in missing)}, "
                         "or arrays that have them")
    rng = np.random.default_rng(seed)
    out = {}
    for o in compiled.inputs:
        out[o.name] = given[o.name] if o.name in given else _random(o, _shape(o, env), rng)
    return out


def _bind(operand: Operand, shape: Sequence[int], env: dict[str, int]) -> None:
    from pipelink_ir.ir.shapes import ShapeMismatch, bind_shape
    try:
        bind_shape(operand.type, shape, env)
    except ShapeMismatch:
        return  # binding the arrays tells it, and where


def _shape(operand: Operand, env: Mapping[str, int]) -> tuple[int, ...]:
    try:
        return tuple(evaluate_int(d, env) for d in operand.type.dims)
    except CannotEvaluate as fault:
        raise UsageError(f"the shape of '%{operand.name}' cannot be worked out: {fault}") from None


def _random(operand: Operand, shape: tuple[int, ...], rng: Any) -> Any:
    """Values that every operator can take: floats of [0, 1), codes of all values, bits; wide integers are 0 or 1, for they may be indices."""
    import numpy as np
    if any(n < 0 for n in shape):
        raise UsageError(f"'%{operand.name}' would have the shape {list(shape)}")
    dtype = DTYPES[operand.type.dtype]
    if math.prod(shape) * dtype.bytes >= 1 << 62:
        raise UsageError(f"'%{operand.name}' would have the shape {list(shape)}, which no memory holds")
    if dtype.kind == "float":
        return rng.random(shape, dtype=np.float32).astype(dtype.numpy())
    kind = dtype.numpy()
    if kind == np.dtype(bool) or dtype.bytes > 2:
        return rng.integers(0, 2, shape).astype(kind)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
