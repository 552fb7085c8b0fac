"""`make docs`: write the pages of `docs/generated/` and `docs/errors/` from the code, and render every page to `out/docs`.

`python docs/build.py --check` only says whether the generated pages are up to date (exit status 1 if not).
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

from pipelink_ir.grammar import parse
from pipelink_ir.ir.codes import CODES
from pipelink_ir.ir.diagnostics import ProgramError, Report
from pipelink_ir.ir.environment import VARIABLES
from pipelink_ir.ir.functions import FUNCTIONS, REDUCTIONS, TYPING
from pipelink_ir.ir.nodes import Module, Operator
from pipelink_ir.passes.manager import find_pass, parse_passes, run_passes
from pipelink_ir.passes.options import explain_options
from pipelink_ir.passes.pipeline import ALIASES, SECTIONS
from pipelink_ir.runtime import project_keys
from pipelink_ir.runtime.policies import lowering_faults
from pipelink_ir.runtime.project import Project

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
STYLE = ("body{max-width:60em;margin:2em auto;font-family:sans-serif;line-height:1.5}pre{background:#f4f4f4;padding:.7em;overflow:auto}"
         "td,th{padding:.2em .6em}img{max-width:100%}")
NOTE = "<!-- written by docs/build.py: change the code, then `make docs` -->\n"


def _code(text: str) -> str:
    """A cell of a table in code font; a bar would end the cell."""
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def functions() -> str:
    """The table of scalar functions and reductions."""
    out = [NOTE, "# Functions and reductions\n", "## Typing rules\n", *(f"- `{name}`: {rule}" for name, rule in TYPING.items()),
           "\n## Functions\n", "| function | typing | within ulp (f32, f64) | | same as |", "|---|---|---|---|---|"]
    for f in FUNCTIONS.values():
        arguments = ("a", "b", "c")[:f.arity]
        shown = f"{arguments[0]} {f.name} {arguments[1]}" if f.infix and f.arity == 2 else f"{'-' if f.name == 'neg' else 'not '}a" if f.infix \
            else f"{f.name}({', '.join(arguments)})"
        out.append(f"| {_code(shown)} | {f.typing} | {f'{f.ulp:g}' if f.ulp else 'exact'} | {f.doc} | {_code(f.expand or '')} |")
    out += ["\n## Reductions\n", "| reduction | over nothing | `empty` decides | |", "|---|---|---|---|"]
    out += [f"| `{r.name}` | {r.empty} | {'yes' if r.governed else 'no'} | {r.doc} |" for r in REDUCTIONS.values()]
    return "\n".join(out) + "\n"


ERRORS = "../errors"
"""Where the pages about errors are, as seen from `docs/generated`."""


def errors() -> str:
    """The list of all codes."""
    out = [NOTE, "# Errors\n", "Every message carries a code. `pipelinkc explain PL2501` and `pipelinkc explain bounds` print what stands on its page. The "
           "field is what tools filter by: `pipelinkc check --format json` gives it with file, line and column.\n", "| code | field | |", "|---|---|---|"]
    return "\n".join([*out, *(f"| [{code}]({code}.md) | `{entry.field}` | {entry.title} |" for code, entry in CODES.items())]) + "\n"


def error_page(code: str) -> str:
    """What `pipelinkc explain` says of one code, and how it is told."""
    entry = CODES[code]
    out = [NOTE, f"# {code}: {entry.field}\n", f"{entry.title[0].upper()}{entry.title[1:]}.\n", entry.why]
    if entry.wrong:
        out += ["\n## Wrong\n", "```text", entry.wrong.strip("\n"), "```"]
        told = _told(code, entry.wrong)
        out += ["\n```text", told, "```"] if told else []
    if entry.right:
        out += ["\n## Right\n", "```plir", entry.right.strip("\n"), "```"]
    return "\n".join(out) + "\n"


def _told(code: str, program: str) -> str:
    """The message that `pipelinkc check` prints for a program; empty where only a run shows the fault."""
    report = Report()
    try:
        module = parse(program.strip("\n") + "\n", "wrong.plir")
        run_passes(module, parse_passes("validate"), report)
        found = [*report.diagnostics, *lowering_faults("wrong.plir", module, Project(), (), report.diagnostics)]
    except ProgramError as error:
        found = list(error.diagnostics)
    return "\n".join(d.text() for d in found if d.code == code)


def passes() -> str:
    """Every pass with its docstring, in the order in which they run."""
    out = [NOTE, "# Passes\n", "In the order in which they run. `pipelinkc --help-passes=NAME` prints the same.\n"]
    for section in SECTIONS:
        if section.passes:
            out.append(f"## {section.title.capitalize()}\n")
        for name in section.passes:
            found = find_pass(name)
            doc = sys.modules[found.function.__module__].__doc__ or ""
            out += [f"### {name}\n", f"{found.description[0].upper()}{found.description[1:]}.\n", "```text", doc.strip(), "```\n"]
            options = explain_options(found.options)
            out += ["Options:\n", *(f"- `{key}={default}`: {said}" for key, default, said in options), ""] if options else []
    out += ["## Whole pipelines\n", "Usable wherever a pass is.\n", "| name | passes |", "|---|---|"]
    out += [f"| `{name}` | {_code(text)} |" for name, text in ALIASES.items()]
    return "\n".join(out) + "\n"


def environment() -> str:
    """Every environment variable that is read."""
    out = [NOTE, "# Environment variables\n", "| variable | default | |", "|---|---|---|"]
    return "\n".join([*out, *(f"| `{v.name}` | {v.default} | {v.doc} |" for v in VARIABLES)]) + "\n"


def _signature(op: Operator, text: str) -> str:
    return " ".join(text[op.signature.start:op.signature.end].split())


def library() -> str:
    """Every operator of the library with what its `///` lines say."""
    out = [NOTE, "# The library\n", "The operators are PLIR text: `pipelink_ir/std/`.\n"]
    for path in sorted((ROOT / "pipelink_ir" / "std").glob("*.plir")):
        text = path.read_text(encoding="utf-8")
        module: Module = parse(text, path.name)
        name = "std" if path.stem == "core" else f"std.{path.stem}"
        how = "Built in, no import needed." if path.stem == "core" else f"`import {name}`"
        out += [f"## {name}\n", f"{how}\n"]
        for op in module.operators:
            out += [f"### @{name}.{op.name}\n", "```text", _signature(op, text), "```\n", *([" ".join((op.doc or "").split()) + "\n"] if op.doc else [])]
    return "\n".join(out)


GENERATED: dict[str, Callable[[], str]] = {"functions.md": functions, "passes.md": passes, "std.md": library,
                                           "environment.md": environment,
                                           "../project-file.md": lambda: NOTE + project_keys.page(), "../pipelink.schema.json": project_keys.schema_text,
                                           f"{ERRORS}/README.md": errors, **{f"{ERRORS}/{code}.md": functools.partial(error_page, code) for code in CODES}}


def render(folder: Path) -> int:
    """All pages as HTML, links between them adapted. The number of pages, 0 where the package that renders is not installed."""
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return 0
    markdown = MarkdownIt("commonmark").enable("table")
    pages = [ROOT / name for name in PAGES] + sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))
    for page in pages:
        to = folder / page.relative_to(ROOT).with_suffix(".html")
        to.parent.mkdir(parents=True, exist_ok=True)
        body = markdown.render(page.read_text(encoding="utf-8")).replace('.md"', '.html"').replace(".md#", ".html#")
        to.write_text(f'<!doctype html><meta charset="utf-8"><title>{page.stem}</title><style>{STYLE}</style>\n{body}', encoding="utf-8")
    return len(pages)


def main() -> int:
    folder = ROOT / "docs" / "generated"
    stale = []
    for name, write in GENERATED.items():
        path, text = folder / name, write()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run `make docs`" if stale else "the generated pages are up to date", file=sys.stderr)
        return 1 if stale else 0
    pages = render(ROOT / "out" / "docs")
    print(f"docs: {', '.join(stale) or 'nothing'} written; {pages} pages in out/docs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
