"""`--tune` and `--tuned`: what is written, what is said, what is refused. How long anything takes is not looked at."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pipelink_ir.passes.scheduling.tuned_file import read_tuned
from tests.unit.cli.command import Done
from tests.unit.runtime.programs import SHARES

Command = Callable[..., Done]


def test_the_command(tmp_path: Path, pipelinkc: Command) -> None:
    program = tmp_path / "shares.plir"
    program.write_text(SHARES)
    done = pipelinkc("bench", program, "--target", "cpu", "--size", "N=9,K=70", "--runs", "2", "--tune")
    assert done.status == 0, done.err
    assert "of 1 operators have a better schedule now, for cpu" in done.err
    assert "%e: place = buffer" in done.err
    assert [e.name for e in read_tuned(str(tmp_path / "shares.tuned.yaml"))] == ["shares"]
    done = pipelinkc(program, "--explain", "-o", tmp_path / "out.plir")
    assert "(shares.tuned.yaml)" in done.err
    (tmp_path / "shares.tuned.yaml").write_text("tuned: 3\n")
    done = pipelinkc(program, "-o", tmp_path / "out.plir")
    assert done.status == 2
    assert "shares.tuned.yaml:1:8: error[PL9103]" in done.err
    assert pipelinkc(program, "--tuned", "off", "-o", tmp_path / "out.plir").status == 0
    assert pipelinkc(program, "--tuned", tmp_path / "none.yaml").status == 2
    assert pipelinkc(program, "--tune", "--tuned", "off").status == 2
    assert pipelinkc("-", "--tune").status == 2
    done = pipelinkc(program, "--size", "N=9")
    assert (done.status, done.out) == (2, "")
    assert "without --tune" in done.err
    done = pipelinkc(program, "--tune", "--size", "N=9,K=70,Q=1")
    assert done.status == 2
    assert "has no size 'Q'" in done.err
