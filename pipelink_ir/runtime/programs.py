"""Finding programs: files, and folders with programs in them."""
from __future__ import annotations

import os
from collections.abc import Iterable

from pipelink_ir.ir.diagnostics import Diagnostic
from pipelink_ir.runtime.sources import file_error, os_reason


def find_programs(paths: Iterable[str]) -> tuple[list[str], list[Diagnostic]]:
    """Every `.plir` file that the paths mean, each once and in order, and what is wrong with paths. What a folder hides (`.git`) is not looked into."""
    files: list[str] = []
    problems: list[Diagnostic] = []
    for path in paths:
        if path == "-" or not os.path.isdir(path):
            files.append(path)
            continue
        found, faults = _below(path)
        files += found
        problems += faults
        if not found and not faults:
            problems += file_error(path, "there is no .plir file in this folder").diagnostics
    once: dict[str, str] = {}
    for file in files:
        once.setdefault(file if file == "-" else os.path.realpath(file), file)
    return list(once.values()), problems


def _below(folder: str) -> tuple[list[str], list[Diagnostic]]:
    files: list[str] = []
    faults: list[OSError] = []
    for root, folders, names in os.walk(folder, onerror=faults.append):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        files += [os.path.join(root, n) for n in sorted(names) if n.endswith(".plir")]
    return files, [d for e in faults for d in file_error(str(e.filename), f"cannot be read: {os_reason(e)}").diagnostics]
