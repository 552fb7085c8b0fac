"""One run of an executable on arrays that were bound: inputs packed where they have to be, results fresh or where the caller wants them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from pipelink_ir.ir.nodes import Operand

if TYPE_CHECKING:
    from pipelink_ir.backends.interface import Executable
    from pipelink_ir.runtime.bind import Bound
    from pipelink_ir.runtime.inside import Inside
    from pipelink_ir.runtime.outputs import Given
    from pipelink_ir.runtime.values import Watched


def run(executable: Executable, results: Sequence[Operand], bound: Bound, given: Mapping[str, Given] | None = None,
        watched: Watched | None = None, inside: Inside | None = None) -> dict[str, Any]:
    """The results by name. With `watched`, the executable has more results, whose values are checked. `inside` is an arena of the caller's."""
    if hasattr(executable, "driver"):
        from pipelink_ir.runtime import device_calls
        return device_calls.run(cast(Any, executable), results, cast(Any, bound), given, watched, inside)
    at_addresses = getattr(executable, "run_dense", None)
    if at_addresses is None:
        in_arena = getattr(executable, "run_in", None) if inside is not None else None
        values = in_arena(bound.arrays, _bytes(inside)) if in_arena is not None else executable(bound.arrays)
    else:
        addresses, kept = bound.dense() if bound.packed else (bound.addresses, None)
        # What is checked first is not written to the caller's memory before.
        into = _into(results, given) if given and watched is None else {}
        values = at_addresses(bound.shapes, addresses, into, inside.address) if inside is not None else at_addresses(bound.shapes, addresses, into)
        del kept
    if watched is not None:
        from pipelink_ir.runtime.values import check
        check(watched, {**bound.arrays, **values}, dict(zip(bound.names, bound.sources, strict=True)))
        values = {r.name: values[r.name] for r in results}
    if not given:
        return dict(values)
    return {r.name: _handed(r, values[r.name], given.get(r.name), at_addresses is not None and watched is None) for r in results}


def _bytes(inside: Inside | None) -> Any:
    """An arena as bytes of NumPy's."""
    import numpy as np

    from pipelink_ir.runtime.readers import read
    assert inside is not None
    return read(inside.arena).numpy().reshape(-1).view(np.uint8)


def _into(results: Sequence[Operand], given: Mapping[str, Given]) -> dict[int, tuple[Any, int]]:
    """The arrays that kernels write to themselves."""
    return {n: (given[r.name].view.numpy(), given[r.name].view.address) for n, r in enumerate(results) if r.name in given and given[r.name].direct}


def _handed(result: Operand, value: Any, given: Given | None, written: bool) -> Any:
    """The caller's array, with the values in it."""
    if given is None:
        return value
    if not (given.direct and written):
        given.write(result, value)
    return given.target
