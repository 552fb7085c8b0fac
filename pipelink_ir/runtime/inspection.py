"""What is to be known of an array, as text."""
from __future__ import annotations

from typing import Any

from pipelink_ir.runtime import strides as arithmetic
from pipelink_ir.runtime.forms import describe
from pipelink_ir.runtime.readers import as_view
from pipelink_ir.runtime.tensor import TensorView


def inspect_tensor(array: Any) -> str:
    """What is to be known of an array before it is given to a pipeline: shape, strides, dtype, pointer, alignment, contiguity, device, layout.

    Takes any array that a pipeline takes. The first line is a summary; each further line is one property."""
    view = as_view(array) if not isinstance(array, TensorView) else array
    size = view.dtype.bytes
    lines = [f"{describe(view.dtype, view.shape)} on {view.device}, {view.contiguity}"]
    whole = not any(s % size for s in view.byte_strides)
    order = arithmetic.memory_order(view.shape, view.byte_strides)
    rows = {
        "shape": str(list(view.shape)), "strides": (f"{list(view.strides)} elements, " if whole else "") + f"{list(view.byte_strides)} bytes",
        "dtype": f"{view.dtype} ({size} byte{'s' * (size != 1)})", "pointer": f"{view.address:#x}", "alignment": f"{view.alignment} bytes",
        "contiguity": _contiguity_text(view), "device": view.device, "layout": _layout_text(view, order), "bytes": str(view.nbytes),
        "writable": "no" if view.readonly else "yes", **({"made at": str(view.made)} if view.made and isinstance(array, TensorView) else {}),
    }
    return "\n".join([*lines, *(f"  {name:<10} {text}" for name, text in rows.items())])


def _contiguity_text(view: TensorView) -> str:
    kind = view.contiguity
    if kind == "rows":
        return f"rows at a pitch of {view.pitch} bytes"
    if kind == "dense":
        return "dense (row-major, no gaps)"
    axis = arithmetic.repeats(view.shape, view.byte_strides)
    if axis is not None:
        return f"strided: axis {axis} repeats one element (stride 0)"
    backwards = [k for k, s in enumerate(view.byte_strides) if s < 0 and view.shape[k] > 1]
    return f"strided: axis {backwards[0]} runs backwards" if backwards else "strided"


def _layout_text(view: TensorView, order: tuple[int, ...]) -> str:
    said = view.layout or "not said"
    if order == tuple(range(view.ndim)):
        return said
    names = "".join(view.layout[k] for k in order) if view.layout else f"axes {', '.join(map(str, order))}"
    return f"{said}; in memory, from the outermost: {names}"
