#!/usr/bin/env python3
"""The direction of imports, checked: `check_layers.py [ROOT]`.

The layers are `ir <- grammar <- passes <- backends <- runtime <- cli`; a module imports its own layer and those before it, at its head or inside a
function. Also checked: no circular imports; nothing imports the bare names behind the links; heavy packages are imported by the function that needs
them; the reference backend stands on little; the CPU backend computes nothing with NumPy. Needs only the standard library. Exit status 1 if a rule is broken.
"""
from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

LAYERS = ("ir", "grammar", "passes", "backends", "runtime", "cli")
PACKAGE = "pipelink_ir"
FOLDERS = {"ir": "pipelink_ir/ir", "grammar": "grammar", "passes": "passes", "backends": "backends", "runtime": "pipelink_ir/runtime",
           "cli": "pipelink_ir/cli"}
OTHER_PYTHON = ("tests", "examples", "benchmarks", "docs")
"""Code that stands outside the layers; only the ban of bare names holds there."""

LINKS = frozenset({"grammar", "passes", "backends"})
HEAVY = frozenset({"cupy", "llvmlite", "yaml", "ray", "PIL", "numpy", "ml_dtypes", "lark", "safetensors", "torch", "rich", "click"})
MAY_IMPORT_HEAVY = ("backends", "grammar.engine", "grammar.parser")
"""Modules that are themselves imported only when they are needed."""

REFERENCE_MAY = ("ir", "grammar", "passes.resolve", "passes.infer", "backends.interface", "backends.reference")
CPU_NUMPY_MAY = frozenset({"ndarray", "dtype", "generic", "empty", "asarray", "ascontiguousarray", "frombuffer", "typing", "uint8", "void"})
"""What the CPU backend may take from NumPy: arrays as memory. It computes with LLVM only, so that it cannot lean on an evaluator."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One import statement: the module named, where, and whether it runs when the importing module is loaded."""

    name: str
    line: int
    at_load: bool
    for_types: bool


@dataclass(slots=True)
class Unit:
    """One module of the package: its name below `pipelink_ir`, its file and its imports."""

    name: str
    path: Path
    tree: ast.Module
    imports: list[Imported] = field(default_factory=list)


def imports_of(tree: ast.Module) -> Iterator[Imported]:
    """Every import in a module, those inside functions and under `if TYPE_CHECKING` included."""
    def walk(node: ast.AST, at_load: bool, for_types: bool) -> Iterator[Imported]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Imported(alias.name, child.lineno, at_load, for_types)
            elif isinstance(child, ast.ImportFrom):
                base = "." * child.level + (child.module or "")
                yield Imported(base, child.lineno, at_load, for_types)
                for alias in child.names:
                    yield Imported(f"{base}.{alias.name}", child.lineno, at_load, for_types)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from walk(child, at_load, True)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from walk(child, False, for_types)
            else:
                yield from walk(child, at_load, for_types)
    yield from walk(tree, True, False)


def read(root: Path) -> tuple[dict[str, Unit], list[str]]:
    """All modules of the layers by name (`passes.manager`), and faults found on the way."""
    units, faults = {}, []
    for layer, folder in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = [layer, *path.relative_to(root / folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            try:
                tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
            except SyntaxError as error:
                faults.append(f"{path}:{error.lineno}: does not parse: {error.msg}")
                continue
            units[name] = Unit(name, path, tree, list(imports_of(tree)))
    return units, faults


def internal(imported: str) -> str | None:
    """The name below the package, `passes.manager` for `pipelink_ir.passes.manager`; None for what is not ours."""
    return imported[len(PACKAGE) + 1:] if imported.startswith(PACKAGE + ".") else None


def check_direction(unit: Unit) -> Iterator[str]:
    own = LAYERS.index(unit.name.split(".")[0])
    for i in unit.imports:
        target = internal(i.name)
        layer = target.split(".")[0] if target else None
        if layer in LAYERS and LAYERS.index(layer) > own:
            yield f"{unit.path}:{i.line}: layer '{LAYERS[own]}' imports '{i.name}' of the later layer '{layer}'"


def check_bare(path: Path, imports: list[Imported]) -> Iterator[str]:
    for i in imports:
        if i.name.split(".")[0] in LINKS:
            yield f"{path}:{i.line}: import '{i.name}' as '{PACKAGE}.{i.name}'"
        if i.name.startswith(".."):
            yield f"{path}:{i.line}: relative import '{i.name}': write it from '{PACKAGE}' on"


def check_cheap(unit: Unit) -> Iterator[str]:
    if unit.name.startswith(MAY_IMPORT_HEAVY):
        return
    for i in unit.imports:
        if i.at_load and not i.for_types and i.name.split(".")[0] in HEAVY:
            yield f"{unit.path}:{i.line}: '{i.name}' is imported at the head: import it in the function that needs it"


def check_reference(unit: Unit) -> Iterator[str]:
    if not unit.name.startswith("backends.reference"):
        return
    for i in unit.imports:
        target = internal(i.name)
        if target and target != "backends" and not target.startswith(REFERENCE_MAY) and not any(m.startswith(target) for m in REFERENCE_MAY):
            yield f"{unit.path}:{i.line}: the reference backend imports '{i.name}'; it may use only {', '.join(REFERENCE_MAY)}"


def check_cpu(unit: Unit) -> Iterator[str]:
    """Functions of NumPy other than those that make memory are not used in backends/cpu."""
    if not unit.name.startswith("backends.cpu"):
        return
    names = {"np", "numpy"}
    for node in ast.walk(unit.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names and node.attr not in CPU_NUMPY_MAY:
            yield f"{unit.path}:{node.lineno}: the CPU backend uses numpy.{node.attr}; it may use only {', '.join(sorted(CPU_NUMPY_MAY))}"


def check_cycles(units: dict[str, Unit]) -> Iterator[str]:
    """Circles among imports of modules, those inside functions included, those for type checkers not."""
    edges: dict[str, dict[str, int]] = {}
    for unit in units.values():
        out = edges.setdefault(unit.name, {})
        for i in unit.imports:
            target = None if i.for_types else internal(i.name)
            if target in units and target != unit.name:
                out.setdefault(target, i.line)
    state: dict[str, int] = {}
    for start in edges:
        if start in state:
            continue
        path, stack = [start], [iter(edges[start])]
        state[start] = 1
        while stack:
            follow = next(stack[-1], None)
            if follow is None:
                stack.pop()
                state[path.pop()] = 2
            elif state.get(follow) == 1:
                circle = [*path[path.index(follow):], follow]
                yield f"{units[circle[0]].path}:{edges[circle[0]][circle[1]]}: circular import: {' -> '.join(circle)}"
            elif follow not in state:
                state[follow] = 1
                path.append(follow)
                stack.append(iter(edges[follow]))


def check(root: Path) -> list[str]:
    """Every broken rule below `root`, as `file:line: message`."""
    units, faults = read(root)
    for unit in units.values():
        for rule in (check_direction, check_cheap, check_reference, check_cpu):
            faults += rule(unit)
        faults += check_bare(unit.path, unit.imports)
    faults += check_cycles(units)
    for folder in OTHER_PYTHON:
        for path in sorted((root / folder).rglob("*.py")):
            faults += check_bare(path, list(imports_of(ast.parse(path.read_text(encoding="utf-8")))))
    return faults


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"layers: {len(faults)} faults", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
