"""What `--help-passes` prints: the passes in order, or one with its page and its options."""
from __future__ import annotations

import importlib
import inspect

from pipelink_ir.passes.manager import find_pass
from pipelink_ir.passes.options import explain_options
from pipelink_ir.passes.pipeline import ALIASES, SECTIONS, module_of


def all_passes() -> str:
    """Every pass with its line, and the names of whole pipelines."""
    lines = []
    for section in SECTIONS:
        lines += [f"{section.title}:", *(f"  {name:<18} {find_pass(name).description}" for name in section.passes)] if section.passes else []
    return "\n".join([*lines, "names of several:", *(f"  {name:<18} {text or 'no pass'}" for name, text in ALIASES.items())])


def one_pass(name: str) -> str:
    """A pass: its line, its page and its options."""
    found = find_pass(name, "--help-passes: ")
    page = inspect.cleandoc(importlib.import_module(module_of(name)).__doc__ or "")
    options = [f"  {f'{key}={default}':<20} {said}" for key, default, said in explain_options(found.options)]
    return "\n".join([f"{name}: {found.description}", "", page, "", "options:" if options else "no options", *options])
