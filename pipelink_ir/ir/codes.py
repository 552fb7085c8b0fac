"""The table of diagnostic codes: what `pipelinkc explain` and `docs/errors` say.

A code is PL and four digits: 1xxx text and names, 2xxx meaning, 3xxx contracts, 4xxx targets and policies, 5xxx plans and devices, 6xxx run time,
9xxx the tool itself. `field` is the key that tools filter by.
"""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """What one code means: a title, why it is an error, a wrong program and a right one."""

    field: str
    title: str
    why: str = ""
    wrong: str = ""
    right: str = ""


CODES: dict[str, Code] = {
    "PL1001": Code("syntax", "the text does not parse"),
    "PL1101": Code("name", "a name that nothing defines, or an input that nothing reads"),
    "PL1201": Code("duplicate", "a second definition of one name"),
    "PL1301": Code("import", "a module that is missing or imports itself"),
    "PL2001": Code("arity", "the number of operands or results"),
    "PL2101": Code("attribute", "an attribute or key that is unknown, missing or of another type"),
    "PL2201": Code("dtype", "element types that do not agree"),
    "PL2301": Code("rank", "the number of dimensions"),
    "PL2401": Code("shape", "dimensions that do not agree"),
    "PL2501": Code("bounds", "a read outside an operand, or not proven inside"),
    "PL2601": Code("recurrence", "a recurrence that reads ahead or has no base case"),
    "PL2701": Code("cycle", "definitions or nodes that need each other"),
    "PL2702": Code("dependency", "an `after` or `wait` that cannot be met"),
    "PL2801": Code("result", "a result that is not defined, not over its whole shape, or not read"),
    "PL2901": Code("gradient", "an adjoint of no operand or of the wrong shape"),
    "PL3001": Code("layout", "the order of axes in memory"),
    "PL3101": Code("align", "alignment in bytes"),
    "PL3201": Code("padding", "`same` and `valid`"),
    "PL3301": Code("border", "what lies outside an operand"),
    "PL3401": Code("contiguity", "dense, pitched or strided memory"),
    "PL3501": Code("cross_device", "an operand made on another device"),
    "PL3601": Code("inplace", "a result that shares memory with an operand"),
    "PL3701": Code("range", "the range of values"),
    "PL3801": Code("color", "the colour space"),
    "PL3901": Code("finite", "freedom from NaN and infinities"),
    "PL4001": Code("arch", "an architecture that is not met"),
    "PL4101": Code("library", "a library that is unknown or absent"),
    "PL4201": Code("downgrade", "a policy that cannot be carried out"),
    "PL4301": Code("budget", "an error budget"),
    "PL4401": Code("target", "a target that does not exist"),
    "PL5001": Code("streams", "the number of streams"),
    "PL5101": Code("batch", "the batch dimension"),
    "PL5201": Code("device", "a device that does not exist"),
    "PL6001": Code("input", "an array that does not match its input"),
    "PL6101": Code("execution", "data that the program cannot be run on"),
    "PL9001": Code("unsupported", "a feature that this version does not have"),
    "PL9101": Code("file", "a file that cannot be read or written"),
}
"""Every code, in order."""
