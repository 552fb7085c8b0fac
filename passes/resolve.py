"""Names: imports, operators, edges, attributes.

Before:  import std.image                            After:  op @std.image.gray(…) -> (…) { … }
         pipeline @p(…) { %y = @gray(%x) }                   pipeline @p(…) { %y = @std.image.gray(%x) }

Every imported operator that is used becomes an item of the module under its full name, so that a printed module stands alone. Reported here:
names that nothing defines (with the nearest known), second definitions, arities, attributes, cycles of nodes and of imports, results that nothing
assigns, inputs and results that nothing reads.

Requires: a parsed module.
Keeps: the order of items and nodes, and everything inside operators.
Adds: full names of operators; no import is left.
"""
from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import pipelink_ir
from pipelink_ir.ir.diagnostics import Note, ProgramError, Report, did_you_mean
from pipelink_ir.ir.nodes import Graph, Import, Module, Node, Operator, Pipeline, Target
from pipelink_ir.passes.manager import register_pass
from pipelink_ir.passes.scopes import check_device, check_scope, check_unique

BUILTINS = ("std.copy", "std.cast", "std.quantize", "std.dequantize")
"""Operators that need no import; they stand in `std/core.plir`."""

STD = Path(pipelink_ir.__file__).parent / "std"
"""The standard library: PLIR text shipped in the package."""


@dataclass(frozen=True, slots=True)
class Options:
    """Where imported files are looked for."""

    search_paths: tuple[str, ...] = ()
    """Folders in which `import "file.plir"` looks after the folder of the importing file."""


@dataclass(slots=True)
class _File:
    """One loaded file: its operators under their full names, and what its own names mean."""

    path: str
    prefix: str
    module: Module
    own: dict[str, Operator]
    imports: list[_File]

    def full(self, name: str) -> str:
        return f"{self.prefix}.{name}" if self.prefix else name


@register_pass("resolve", "names, imports, defaults", Options)
def resolve(module: Module, options: Options, report: Report) -> Module:
    """Resolve all names of `module`; see the page above."""
    loader = _Loader(options, report)
    main = loader.main(module)
    report.stop_if_failed()
    return _Linker(main, loader, report).link()


class _Loader:
    """Reads imported files, each once."""

    def __init__(self, options: Options, report: Report) -> None:
        self.options, self.report = options, report
        self.files: dict[str, _File] = {}
        self.stack: list[tuple[str, Import | None]] = []

    def main(self, module: Module) -> _File:
        return self._file(module, "", str(Path(module.path).resolve()) if module.path else "")

    def _file(self, module: Module, prefix: str, key: str) -> _File:
        check_unique(module.operators, "operator '@{}'", self.report)
        check_unique(module.pipelines, "pipeline '@{}'", self.report)
        check_unique(module.targets, "target '@{}'", self.report)
        file = _File(module.path, prefix, module, {o.name: o for o in module.operators}, [])
        self.files[key] = file
        for item in module.imports:
            self.stack.append((key, item))
            found = self._import(item, module.path)
            if found is not None and all(f is not found for f in file.imports):
                file.imports.append(found)
            self.stack.pop()
        return file

    def _import(self, item: Import, importer: str) -> _File | None:
        path = self._find(item, importer)
        if path is None:
            return None
        key = str(path.resolve())
        open_files = [k for k, _ in self.stack]
        if key in open_files:
            # The message belongs to the import of the file that is being checked; the other imports of the ring are notes.
            ring = [i for k, i in self.stack[open_files.index(key):] if i is not None]
            first, rest = ring[0], ring[1:]
            self.report.error("import", first.span, f"'{Path(key).name}' imports itself" + (" through others" if rest else ""),
                              [Note("and from here", i.span) for i in rest], "move what both need into a third file")
            return None
        if key in self.files:
            return self.files[key]
        from pipelink_ir.grammar import parse
        try:
            module = parse(path.read_bytes(), self._shown(path, item, importer))
        except ProgramError as error:
            self.report.diagnostics.extend(error.diagnostics)
            return None
        except OSError as error:
            self.report.error("import", item.span, f"'{path}' cannot be read: {error.strerror or error}")
            return None
        return self._file(module, item.module or path.stem, key)

    def _find(self, item: Import, importer: str) -> Path | None:
        if item.module is not None:
            return self._find_std(item)
        assert item.file is not None
        base = Path(importer).parent if importer and not importer.startswith("<") else Path()
        for folder in (base, *map(Path, self.options.search_paths)):
            candidate = folder / item.file
            if os.path.isfile(candidate):  # False also for what the system refuses to look up: a name that is too long
                return candidate
        near = sorted(str(p.relative_to(base)) for p in base.glob("*/*.plir")) + sorted(p.name for p in base.glob("*.plir")) if base.is_dir() else []
        self.report.error("import", item.span, f"there is no file '{item.file}' beside '{Path(importer).name or '.'}'"
                          + (" or on the search path" if self.options.search_paths else ""), (), did_you_mean(item.file, near))
        return None

    def _find_std(self, item: Import) -> Path | None:
        assert item.module is not None
        parts = item.module.split(".")
        path = STD.joinpath(*parts[1:]).with_suffix(".plir")
        known = sorted("std." + p.stem for p in STD.glob("*.plir"))
        if parts[0] != "std" or len(parts) < 2 or not path.is_file():
            self.report.error("import", item.span, f"there is no module '{item.module}'", (),
                              did_you_mean(item.module, known) or (f"modules are {', '.join(known)}; a file is imported as \"{item.module}.plir\""))
            return None
        return path

    @staticmethod
    def _shown(path: Path, item: Import, importer: str) -> str:
        return f"std/{path.name}" if item.module is not None else str(path)

    def core(self) -> _File:
        """The file of the built-in operators."""
        key = str((STD / "core.plir").resolve())
        if key not in self.files:
            from pipelink_ir.grammar import parse
            self._file(parse((STD / "core.plir").read_bytes(), "std/core.plir"), "std", key)
        return self.files[key]


class _Linker:
    """Builds the one module that stands alone: own items, and behind them each imported operator that is used."""

    def __init__(self, main: _File, loader: _Loader, report: Report) -> None:
        self.main, self.loader, self.report = main, loader, report
        self.linked: dict[str, Operator] = {}
        self.pending: list[tuple[_File, Operator]] = []
        self.requested: set[str] = set(main.own)

    def link(self) -> Module:
        items: list[Target | Operator | Pipeline] = []
        for item in self.main.module.items:
            if isinstance(item, Operator):
                items.append(self._operator(self.main, item))
            elif isinstance(item, Pipeline):
                items.append(self._pipeline(item))
            elif isinstance(item, Target):
                items.append(item)
        imported: list[Operator] = []
        while self.pending:
            file, op = self.pending.pop(0)
            imported.append(replace(self._operator(file, op), name=file.full(op.name)))
        self.report.stop_if_failed()
        # Imported operators stand before what uses them, as a reader expects.
        if not imported and len(items) == len(self.main.module.items) and all(a is b for a, b in zip(items, self.main.module.items, strict=True)):
            return self.main.module
        return replace(self.main.module, items=(*(i for i in items if isinstance(i, Target)), *imported, *(i for i in items if not isinstance(i, Target))))

    def _operator(self, file: _File, op: Operator) -> Operator:
        check_unique((*op.params, *op.results), "'{}'", self.report)
        if op.graph is None:
            return op
        nodes = check_scope(op.graph.nodes, op, lambda n: self._lookup(file, n), self.report, self._devices(file))
        return op if nodes is op.graph.nodes else replace(op, graph=Graph(nodes, span=op.graph.span))

    def _pipeline(self, pipeline: Pipeline) -> Pipeline:
        check_unique((*pipeline.params, *pipeline.results), "'{}'", self.report)
        check_device(pipeline.device, self._devices(self.main), self.report)
        nodes = check_scope(pipeline.nodes, pipeline, lambda n: self._lookup(self.main, n), self.report, self._devices(self.main))
        return pipeline if nodes is pipeline.nodes else replace(pipeline, nodes=nodes)

    def _devices(self, file: _File) -> set[str]:
        return {t.name for t in file.module.targets}

    def _lookup(self, file: _File, node: Node) -> tuple[str, Operator] | None:
        """The full name and the operator that a node calls."""
        name = node.op
        if name in file.own:
            full = file.full(name)
            if file is not self.main:
                self._request(file, file.own[name])
            return full, file.own[name]
        if name in BUILTINS:
            core = self.loader.core()
            op = core.own[name.removeprefix("std.")]
            self._request(core, op)
            return name, op
        found = [(f, o) for f in file.imports for o in f.own.values() if name in (f.full(o.name), o.name)]
        exact = [(f, o) for f, o in found if f.full(o.name) == name]
        found = exact or found
        if len(found) == 1:
            owner, op = found[0]
            self._request(owner, op)
            return owner.full(op.name), op
        if found:
            names = " and ".join(f"'@{f.full(o.name)}'" for f, o in found)
            self.report.error("name", node.op_span, f"'@{name}' is offered by two imports", [Note(f"'@{f.full(o.name)}'", o.signature) for f, o in found],
                              f"write the full name: {names}")
            return None
        known = [*file.own, *(o.name for f in file.imports for o in f.own.values()), *(f.full(o.name) for f in file.imports for o in f.own.values()), *BUILTINS]
        self.report.error("name", node.op_span, f"there is no operator '@{name}'", (), did_you_mean(name, known, "@") or self._offer(name))
        return None

    @staticmethod
    def _offer(name: str) -> str | None:
        """The standard module that has an operator of this name, as a hint to import it."""
        last = name.rsplit(".", 1)[-1]
        for path in sorted(STD.glob("*.plir")):
            if f"op @{last}(" in path.read_text(encoding="utf-8"):
                return f"'import std.{path.stem}' brings '@{last}'"
        return None

    def _request(self, file: _File, op: Operator) -> None:
        full = file.full(op.name)
        if file is not self.main and full not in self.requested:
            self.requested.add(full)
            self.pending.append((file, op))

