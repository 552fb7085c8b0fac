"""Programs of the corpora with a token or two exchanged: whatever comes of it is answered, never by an internal error, and contract errors propose a fix."""
from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from tests.faulty.checker import CHECKER, InProcess

HERE = Path(__file__).resolve().parent
FILES = sorted(f for folder in (HERE, HERE.parent / "faultless", HERE.parent / "cases") for f in folder.glob("*.plir"))
TEXTS = [re.sub(r"//.*", "", f.read_text(encoding="utf-8")) for f in FILES]
TOKEN = re.compile(r"[%@]?\w+|\.\.\.|\.\.|==|<=|>=|->|\*\*|\S")


def _kind(token: str) -> str:
    """Tokens of one kind can stand in each other's place without spoiling the syntax."""
    if token[0] in "%@" and len(token) > 1:
        return token[0]
    return "number" if token[0].isdigit() else "Upper" if token[0].isupper() else "word" if token[0].isalpha() else "operator" if token in "+-*/<>" else token


def _mutant(chosen: random.Random) -> str:
    text = chosen.choice(TEXTS)
    for _ in range(chosen.choice((1, 1, 2, 3))):
        tokens = list(TOKEN.finditer(text))
        old = chosen.choice(tokens)
        alike = [t.group() for t in tokens if _kind(t.group()) == _kind(old.group())]
        new = "" if chosen.random() < 0.1 else chosen.choice(alike)
        text = text[:old.start()] + new + text[old.end():]
    return text


@pytest.mark.parametrize("seed", range(8))
def test_mutants_are_answered(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    for n in range(25):
        path = tmp_path / f"{n}.plir"
        path.write_text(_mutant(chosen), encoding="utf-8")
        done = InProcess.run(["check", str(path), "--format", "json"])
        assert done.returncode in (0, 1), f"{path.read_text()}\n{done.stderr.decode()}"
        found = json.loads(done.stdout)
        assert not [fault for d in found for fault in CHECKER.form(d)]
        assert not [d for d in found if d["severity"] == "error" and d["field"] in CHECKER.CONTRACT and not (d["help"] or "").strip()], path.read_text()
