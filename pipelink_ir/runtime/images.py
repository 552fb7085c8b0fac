"""Photographs as arrays: `.png` and `.jpg` in and out.

The rule, which `pipelinkc run --help` prints:
- An image is what its file holds: u8 (u16 for 16-bit grey, bool for one bit), rows by columns, and channels where it has more than one.
- The signature decides the axes. Its layout names them (`NHWC`, `NCHW`, `HW`, …); without a layout two dimensions are HW, three HWC, four NHWC, unless
  they are called N, H, W and C in another order. N is 1; the channel axis of a grey image is there or not as the signature says.
- Values are never scaled silently. An input or result of a float dtype needs `:unit` (0…255 is 0…1) or `:raw` (0…255 is 0…255); a result whose operator
  promises `range = [0, 1]` needs none. Results are rounded to nearest even and saturate; NaN is 0.
- Channels are never added or dropped silently: `:rgb`, `:rgba`, `:gray` convert an input first.
"""
from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import UsageError
from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.nodes import Dots, IntLit, Name, Operand, TensorType
from pipelink_ir.runtime.sources import file_error, read_bytes

if TYPE_CHECKING:
    import numpy as np
    Array = np.ndarray[Any, Any]

SCALES = ("unit", "raw")
MODES = {"gray": "L", "rgb": "RGB", "rgba": "RGBA"}
_CHANNELS = {"gray": 1, "rgb": 3, "rgba": 4}
_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """What stands after the path: `photo.png:unit,rgb`."""

    scale: str | None = None
    mode: str | None = None


class Misfit(Exception):
    """An image that does not fit the signature: what is wrong, and the fix."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.message, self.help = message, help


def split_options(text: str) -> tuple[str, ImageOptions]:
    """`photo.png:unit,rgb` in two; a colon that is not followed by known words belongs to the path."""
    path, colon, tail = text.rpartition(":")
    words = tail.split(",") if colon else []
    if not words or not all(w in SCALES or w in MODES for w in words):
        return text, ImageOptions()
    scales, modes = [w for w in words if w in SCALES], [w for w in words if w in MODES]
    if len(scales) > 1 or len(modes) > 1:
        raise UsageError(f"'{text}': ':{tail}' says two things about one image")
    return path, ImageOptions(scales[0] if scales else None, modes[0] if modes else None)


# --------------------------------------------------------------------------------------------------------------------- axes


def axes_of(type: TensorType, what: str) -> str | None:
    """The meaning of each dimension, `NHWC`; None where `...` leaves it open. `what` names the tensor in a `Misfit`."""
    if any(isinstance(d, Dots) for d in type.dims):
        return None
    rank = len(type.dims)
    if type.layout is not None:
        axes = type.layout
    else:
        axes = {2: "HW", 3: "HWC", 4: "NHWC"}.get(rank, "")
        names = "".join(d.name if isinstance(d, Name) else "?" for d in type.dims)
        if names in ("NHW", "CHW", "NCHW"):
            axes = names
        elif rank in (3, 4) and names[-2:] == "HW":
            axes = names if names[:-2] in ("C", "N", "NC") else "NCHW"[-rank:]
    if set(axes) not in ({"H", "W"}, {"H", "W", "C"}, {"N", "H", "W"}, {"N", "H", "W", "C"}) or len(axes) != rank:
        said = f"the layout {type.layout}" if type.layout else f"{rank} dimensions"
        raise Misfit(f"{what} has {said} and is not an image", "give an array as .npy or .npz")
    return axes


def _arrange(pixels: Array, axes: str | None, what: str, origin: str) -> Array:
    """HW or HWC pixels in the order of `axes`."""
    if axes is None:
        return pixels
    have = "HW" if pixels.ndim == 2 else "HWC"
    if "C" in have and "C" not in axes:
        raise Misfit(f"'{origin}' has {pixels.shape[2]} channels, and {what} has no channel axis", f"append ':gray' to the file name: '{origin}:gray'")
    for axis in axes:
        if axis not in have:
            pixels, have = pixels[None], axis + have
    return pixels.transpose([have.index(axis) for axis in axes])


# ------------------------------------------------------------------------------------------------------------------ reading


def read_image(path: str, operand: Operand, options: ImageOptions) -> Array:
    """The image in a file as an array for `operand`. Raises `Misfit` where it does not fit."""
    import numpy as np
    what = f"'%{operand.name}'"
    axes = axes_of(operand.type, what)
    pixels = _pixels(path, options)
    if axes is not None and "C" in axes:
        _check_channels(pixels, operand.type.dims[axes.index("C")], what, path)
    dtype = DTYPES.get(operand.type.dtype)
    if dtype is not None and dtype.is_float:
        pixels = _to_float(pixels, options, what, path).astype(dtype.numpy())
    elif options.scale:
        raise Misfit(f"':{options.scale}' is for inputs of a float dtype, and {what} is {operand.type.dtype}", "leave it out")
    return np.ascontiguousarray(_arrange(pixels, axes, what, path))


def _pixels(path: str, options: ImageOptions) -> Array:
    """u8, u16 or bool; HW for one channel, HWC for more."""
    import numpy as np
    from PIL import Image, UnidentifiedImageError
    data = read_bytes(path)
    try:
        image: Any = Image.open(io.BytesIO(data))
        deep = any("16" in str(tile[3]) for tile in image.tile)
        image.load()
    except UnidentifiedImageError:
        raise file_error(path, "is not an image that can be read") from None
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise file_error(path, f"is not an image that can be read: {' '.join(str(error).split())}") from None
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        if options.mode not in (None, "gray"):
            raise Misfit(f"'{path}' has 16 bits of grey, which ':{options.mode}' does not convert", "leave it out, or give an array as .npy")
        return np.asarray(image).astype(np.uint16)
    if deep and image.mode in ("RGB", "RGBA", "LA"):
        raise Misfit(f"'{path}' has 16 bits a channel, which would be read as 8", "give an array as .npy")
    if image.mode == "1" and options.mode is None:
        return np.asarray(image).astype(np.bool_)
    if options.mode is not None:
        image = image.convert(MODES[options.mode])
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    elif image.mode not in ("L", "LA", "RGB", "RGBA"):
        raise Misfit(f"'{path}' has the colour mode {image.mode}", f"append ':rgb' to the file name: '{path}:rgb'")
    return np.asarray(image)


def _check_channels(pixels: Array, dim: object, what: str, path: str) -> None:
    have = 1 if pixels.ndim == 2 else int(pixels.shape[2])
    if isinstance(dim, IntLit) and dim.value != have:
        word = next((w for w, n in _CHANNELS.items() if n == dim.value), None)
        fix = f"append ':{word}' to the file name: '{path}:{word}'" if word else "give an array as .npy or .npz"
        raise Misfit(f"'{path}' has {have} channel{'s' * (have != 1)}, and {what} has {dim.value}", fix)


def _to_float(pixels: Array, options: ImageOptions, what: str, path: str) -> Array:
    import numpy as np
    if options.scale is None:
        raise Misfit(f"'{path}' holds {pixels.dtype.name} values, and {what} is a float tensor; values are not scaled silently",
                     f"append ':unit' for values in [0, 1], or ':raw' for the numbers as they are: '{path}:unit'")
    largest = 1 if pixels.dtype == np.bool_ or options.scale == "raw" else np.iinfo(pixels.dtype).max
    return pixels.astype(np.float64) / largest


# ------------------------------------------------------------------------------------------------------------------ writing


def check_image_result(path: str, result: Operand, dtype: str, options: ImageOptions, unit: bool) -> None:
    """Refuse, before anything runs, a result that cannot be written as an image. `unit` says that its range is promised to be within [0, 1]."""
    what = f"'%{result.name}'"
    axes_of(result.type, what)
    if options.mode is not None:
        raise Misfit(f"':{options.mode}' is for inputs", "leave it out")
    kind = DTYPES.get(dtype)
    if kind is not None and kind.is_float:
        if options.scale is None and not unit:
            raise Misfit(f"{what} is {dtype}, and nothing promises that it lies in [0, 1]",
                         f"append ':unit' (0…1 is 0…255) or ':raw' (0…255 as it is): '{path}:unit'; or let its operator declare 'range = [0, 1]'")
    elif dtype not in ("u8", "bool") and not (dtype == "u16" and not path.lower().endswith((".jpg", ".jpeg"))):
        raise Misfit(f"{what} is {dtype}, which {path!r} cannot hold", "cast it to u8 in the program, or write .npy or .npz")
    elif options.scale:
        raise Misfit(f"':{options.scale}' is for results of a float dtype, and {what} is {dtype}", "leave it out")


def encode_image(path: str, array: Array, result: Operand, options: ImageOptions) -> bytes:
    """The content of an image file. Raises `Misfit` where the sizes do not fit."""
    from PIL import Image
    what = f"'%{result.name}'"
    pixels = _to_pixels(_rows_columns_channels(array, axes_of(result.type, what), what), options)
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    fits = (1, 3) if _FORMATS[_suffix(path)] == "JPEG" else (1, 2, 3, 4)
    if channels not in fits or (pixels.dtype.itemsize == 2 and channels != 1):
        raise Misfit(f"{what} has {channels} channels of {pixels.dtype.name}, which {path!r} cannot hold", "write .npy or .npz")
    if 0 in pixels.shape:
        raise Misfit(f"{what} has the shape {list(array.shape)}: an image has at least one pixel", "write .npy or .npz")
    out = io.BytesIO()
    more = {"quality": 95} if _FORMATS[_suffix(path)] == "JPEG" else {}
    Image.fromarray(pixels).save(out, format=_FORMATS[_suffix(path)], **more)
    return out.getvalue()


def _suffix(path: str) -> str:
    return next(s for s in _FORMATS if path.lower().endswith(s))


def _rows_columns_channels(array: Array, axes: str | None, what: str) -> Array:
    """HW, or HWC with more than one channel."""
    if axes is None:
        axes = {2: "HW", 3: "HWC", 4: "NHWC"}.get(array.ndim, "")
        if not axes:
            raise Misfit(f"{what} has {array.ndim} dimensions and is not an image", "write .npy or .npz")
    if "N" in axes:
        if array.shape[axes.index("N")] != 1:
            raise Misfit(f"{what} holds {array.shape[axes.index('N')]} images, and a file holds one", "write .npy or .npz")
        array, axes = array.take(0, axes.index("N")), axes.replace("N", "")
    array = array.transpose([axes.index(a) for a in "HWC" if a in axes])
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _to_pixels(array: Array, options: ImageOptions) -> Array:
    import numpy as np
    if array.dtype.kind in "bu":
        return np.ascontiguousarray(array)
    values = np.rint(array.astype(np.float64) * (1 if options.scale == "raw" else 255))
    return np.ascontiguousarray(np.clip(np.nan_to_num(values, nan=0.0), 0, 255).astype(np.uint8))


def promises_unit(bounds: Iterable[float] | None) -> bool:
    """Whether a declared range lies in [0, 1]."""
    pair = tuple(bounds or ())
    return len(pair) == 2 and 0 <= pair[0] and pair[1] <= 1
