"""What `pipelinkc run` does with arrays: inputs from files to a pipeline, results of a pipeline to files."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipelink_ir.ir.diagnostics import ExecutionError, Report, UsageError, did_you_mean
from pipelink_ir.ir.dtypes import DTYPES, from_numpy
from pipelink_ir.ir.nodes import Operand
from pipelink_ir.runtime import files, images
from pipelink_ir.runtime.matching import signature
from pipelink_ir.runtime.ranges import promised_range
from pipelink_ir.runtime.sources import file_error, same_file

if TYPE_CHECKING:
    from pipelink_ir.runtime.compile import Compiled, Results
    from pipelink_ir.runtime.runnable import Runnable


def describe_array(array: Any) -> str:
    """`f32[1, 480, 640, 3]`."""
    dtype = from_numpy(array.dtype)
    return f"{dtype.name if dtype else array.dtype}{list(array.shape)}"


class Inputs:
    """The files named by --inputs and --in."""

    def __init__(self, many: Sequence[str], one: Mapping[str, str]) -> None:
        self.many = tuple(many)
        self.one = {name: images.split_options(text) for name, text in one.items()}

    @property
    def paths(self) -> list[str]:
        return [*self.many, *(path for path, _ in self.one.values())]

    def read(self, compiled: Runnable) -> tuple[dict[str, Any], dict[str, str]]:
        """The arrays by input, and where each came from."""
        wanted = {o.name: o for o in compiled.inputs}
        arrays: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for path in self.many:
            for name, array in files.read_arrays(path).items():
                if name in arrays:
                    raise UsageError(f"'{name}' is in '{origins[name]}' and in '{path}'")
                arrays[name], origins[name] = _bits(array, wanted.get(name)), path
        for name, (path, options) in self.one.items():
            if name not in wanted:
                raise UsageError(f"--in: '@{compiled.pipeline.name}' has no input '%{name}'; {did_you_mean(name, wanted, '%') or signature(compiled.pipeline)}")
            arrays[name], origins[name] = self._read_one(wanted[name], path, options), path
        return arrays, origins

    def _read_one(self, operand: Operand, path: str, options: images.ImageOptions) -> Any:
        kind = files.extension(path)
        if kind in files.IMAGES:
            try:
                return images.read_image(path, operand, options)
            except images.Misfit as misfit:
                report = Report()
                report.error("input", operand.span, misfit.message, (), misfit.help)
                raise ExecutionError(report.diagnostics) from None
        if options != images.ImageOptions():
            raise UsageError(f"--in {operand.name}: what stands after ':' is for images, and '{path}' is none")
        if kind in files.MANY:
            found = files.read_arrays(path)
            if operand.name not in found:
                raise file_error(path, f"has no array '{operand.name}'; it has {', '.join(found) or 'none'}")
            return _bits(found[operand.name], operand)
        if kind != ".npy":
            raise UsageError(f"--in {operand.name}: '{path}' is none of .npy, .npz, .safetensors, .png, .jpg")
        return _bits(files.read_array(path), operand)


def _bits(array: Any, operand: Operand | None) -> Any:
    dtype = DTYPES.get(operand.type.dtype) if operand else None
    return files.from_bits(array, dtype) if dtype else array


class Outputs:
    """The files named by --outputs and --out."""

    def __init__(self, all: str | None, one: Mapping[str, str]) -> None:
        self.all = all
        self.one = {name: images.split_options(text) for name, text in one.items()}
        if all is not None:
            files.check_many(all)
        for name, (path, options) in self.one.items():
            kind = files.extension(path)
            if kind not in (*files.IMAGES, *files.MANY, ".npy"):
                raise UsageError(f"--out {name}: '{path}' is none of .npy, .npz, .safetensors, .png, .jpg")
            if kind not in files.IMAGES and options != images.ImageOptions():
                raise UsageError(f"--out {name}: what stands after ':' is for images, and '{path}' is none")
        if len(set(self.paths)) != len(self.paths):
            raise UsageError("two results are written to one file")

    @property
    def paths(self) -> list[str]:
        return [*([self.all] if self.all is not None else []), *(path for path, _ in self.one.values())]

    @property
    def wanted(self) -> bool:
        return self.all is not None or bool(self.one)

    def check_paths(self, inputs: Sequence[str]) -> None:
        """Refuse to overwrite what is read."""
        for path in self.paths:
            for source in inputs:
                if path != "-" and same_file(path, source):
                    raise UsageError(f"'{path}' is read by this command, and what is read is never overwritten")

    def check(self, compiled: Compiled) -> None:
        """Refuse, before anything runs, what cannot be written."""
        known = {o.name: o for o in compiled.results}
        report = Report()
        for name, (path, options) in self.one.items():
            if name not in known:
                results = "its results are " + ", ".join(f"%{n}" for n in known)
                raise UsageError(f"--out: '@{compiled.pipeline.name}' has no result '%{name}'; {did_you_mean(name, known, '%') or results}")
            if files.extension(path) in files.IMAGES:
                unit = images.promises_unit(promised_range(compiled.module, compiled.pipeline, name))
                try:
                    images.check_image_result(path, known[name], known[name].type.dtype, options, unit)
                except images.Misfit as misfit:
                    report.error("input", known[name].span, misfit.message, (), misfit.help)
        if report.failed:
            raise ExecutionError(report.diagnostics)

    def write(self, results: Results, compiled: Compiled) -> None:
        """Write every file. All contents are made before the first is written."""
        from pipelink_ir.runtime.output import write_output
        known = {o.name: o for o in compiled.results}
        contents: list[tuple[str, bytes]] = []
        for name, (path, options) in self.one.items():
            try:
                contents.append((path, _encode(path, name, results[name], known[name], options)))
            except images.Misfit as misfit:
                report = Report()
                report.error("input", known[name].span, misfit.message, (), misfit.help)
                raise ExecutionError(report.diagnostics) from None
        if self.all is not None:
            contents.append((self.all, files.encode_many(self.all, dict(results.items()))))
        for path, data in contents:
            write_output(path, data)


def _encode(path: str, name: str, array: Any, result: Operand, options: images.ImageOptions) -> bytes:
    kind = files.extension(path)
    if kind in files.IMAGES:
        return images.encode_image(path, array, result, options)
    return files.encode_npy(array) if kind == ".npy" else files.encode_many(path, {name: array})
