"""The keys of `pipelink.yaml`, in one table: the reader, the documentation and the schema for editors are made of it."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pipelink_ir.ir.dtypes import DTYPES
from pipelink_ir.ir.environment import LOG_LEVELS
from pipelink_ir.ir.targets import KNOWN_SM, LIBRARIES
from pipelink_ir.passes.precision.policy import RANGES, SCHEMES, WEIGHTS

FILE = "pipelink.yaml"

_TARGET = {"type": "string", "pattern": r"^(cpu|reference|cuda(:\d+)?|sm_\d+[af]?)$"}
_DEVICE = r"^(cpu|cuda:\d+|@\w+)$"
_LIBRARY = {"enum": list(LIBRARIES)}
_SIZE = {"type": "integer", "minimum": 1}
_POLICY = {
    "dtype": {"enum": list(DTYPES)}, "precision": {"enum": ["mixed"]}, "weights": {"enum": list(WEIGHTS)}, "scheme": {"enum": list(SCHEMES)},
    "granularity": {"type": "string", "pattern": r"^(tensor|channel|block\(\d+\))$"}, "ranges": {"enum": list(RANGES)},
    "block": {"anyOf": [_SIZE, {"type": "array", "items": _SIZE, "minItems": 1, "maxItems": 3}]},
    "library": {"anyOf": [_LIBRARY, {"type": "array", "items": _LIBRARY, "minItems": 1}]}, "budget": {"type": "number", "exclusiveMinimum": 0},
    "force": {"type": "boolean"},
}
"""Keys of one policy, as in a `downgrade` clause. Other keys of a mixed policy are labels, and their values dtypes."""

_BUILD = {
    "program": {"type": "string"}, "pipeline": {"type": "string"}, "targets": {"type": "array", "items": _TARGET, "minItems": 1, "uniqueItems": True},
    "output": {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it holds (`schema` is JSON Schema), what it does, and an example in YAML."""

    name: str
    title: str
    doc: str
    example: str
    schema: dict[str, Any]


KEYS = (
    Key("targets", "what programs are built for",
        "A list of targets: `cpu`, `reference`, `cuda`, `sm_75`, … It holds for programs that declare no target of their own; `--target` replaces both. "
        "`pipelinkc check` checks for the CUDA architectures among them. Programs run on the first of them that is a device of this machine: `cpu`, "
        "`reference`, or `cuda` where there is a GPU; where none is, on the best one present, and `pipelinkc FILE` compiles for `cpu`.",
        "targets: [cpu, sm_75, sm_90]", {"type": "array", "items": _TARGET, "minItems": 1, "uniqueItems": True}),
    Key("search_paths", "where imported files are looked for",
        "Folders, relative to the project file, in which `import \"file.plir\"` looks after the folder of the importing file.",
        "search_paths: [ops, ../shared/ops]", {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    Key("device_map", "which device stands for which",
        "A device of a program (`cuda:1`, `@t4`) and the device that its nodes are placed on instead. Without an entry, what asks for a device that the "
        "target has not runs on the target's own, and the ledger lists it. `--device-map` replaces the whole table.",
        "device_map: {\"cuda:1\": \"cuda:0\"}",
        {"type": "object", "propertyNames": {"pattern": _DEVICE}, "additionalProperties": {"type": "string", "pattern": _DEVICE}}),
    Key("precision", "a policy for operators that have none",
        "For a target, what a `downgrade` clause would say, key by key: `dtype`, `precision: mixed` with a dtype for each label of a pipeline's nodes "
        "(`ffn.up: i8`), `weights`, `scheme`, `granularity`, `ranges`, `block`, `library`, `budget`, `force`; the page of the language has their values. It "
        "holds for operators without a clause for that target, unless a graph around them has one. `dtype` passes over operators that cannot have it, which "
        "the ledger lists; of a label it is a warning. What the keys say against each other is a fault of the file; a label that no program under the project "
        "has is a warning of `pipelinkc check` on the project's folder.",
        "precision: {sm_75: {dtype: f16, budget: 0.01}, sm_87: {dtype: i8, weights: i4, granularity: block(32)}}",
        {"type": "object", "propertyNames": {"pattern": r"^(cpu|sm_\d+[af]?)$"},
         "additionalProperties": {"type": "object", "anyOf": [
             {"properties": _POLICY, "additionalProperties": False},
             {"properties": _POLICY, "required": ["precision"], "additionalProperties": {"enum": list(DTYPES)}}]}}),
    Key("cache", "where compiled code is kept",
        "A folder, relative to the project file, or `off`. The variable `PIPELINK_CACHE_DIR` wins over it.",
        "cache: .pipelink-cache", {"type": "string"}),
    Key("log_level", "what is told on standard error",
        "`debug` prints each array beside the contract that it is matched with. The variable `PIPELINK_LOG_LEVEL` wins over it.",
        "log_level: warning", {"enum": list(LOG_LEVELS)}),
    Key("copies", "whether arrays may be copied",
        "`allow` makes a copy, which the ledger lists, of an array that is not as contiguous as an operator asks; `refuse` (the default) makes it an error. "
        "`--copies` and `copies=` win over it.",
        "copies: refuse", {"enum": ["allow", "refuse"]}),
    Key("build", "what `pipelinkc build` builds",
        "A list of packages: `program` (a file, relative to the project file), and if wanted `pipeline`, `targets` (else those of the project) and `output`. "
        "Versions without the command `build` check the list.",
        "build:\n  - program: edge.plir\n    targets: [sm_75, sm_90]\n    output: out/edge.plk",
        {"type": "array", "items": {"type": "object", "properties": _BUILD, "required": ["program"], "additionalProperties": False}}),
)
"""Every key, in the order of the documentation."""

POLICY_KEYS = tuple(_POLICY)
BUILD_KEYS = tuple(_BUILD)


def schema_text() -> str:
    """The JSON Schema that editors complete and check project files with."""
    out = {
        "$schema": "http://json-schema.org/draft-07/schema#", "title": FILE, "description": "The project file of PipeLink IR.", "type": "object",
        "additionalProperties": False, "properties": {k.name: {"title": k.title, "description": k.doc, **k.schema} for k in KEYS},
    }
    return json.dumps(out, indent=1, ensure_ascii=False) + "\n"


def page() -> str:
    """`docs/project-file.md`."""
    lines = [
        "# The project file\n",
        f"`{FILE}` beside a program, or in any folder above it, holds what all programs of a project share. The nearest one counts, alone. Every key may be "
        "left out; an argument of a command or of a call wins over it. What it says wrongly is reported with line and column, and the exit status is 2.\n",
        "```yaml", *(k.example for k in KEYS), "```\n",
        "Editors that know JSON Schema complete and check it with [pipelink.schema.json](pipelink.schema.json): put "
        "`# yaml-language-server: $schema=…/docs/pipelink.schema.json` on the first line.\n",
        *(f"## {k.name}\n\n{k.title[0].upper()}{k.title[1:]}. {k.doc}\n\n```yaml\n{k.example}\n```\n" for k in KEYS),
        f"Architectures are {', '.join(f'`sm_{n}`' for n in KNOWN_SM if n >= 75)}, dtypes {', '.join(f'`{d}`' for d in DTYPES)}.\n",
    ]
    return "\n".join(lines)
