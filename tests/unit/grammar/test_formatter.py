"""`format_text`: spaces change, nothing else does."""
from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pipelink_ir.grammar import format_text, parse
from pipelink_ir.ir.diagnostics import ProgramError

CASES = sorted(p for p in (Path(__file__).resolve().parents[2] / "cases").rglob("*.plir") if not p.name.startswith("syntax-"))

UGLY = '''

import   std.image
op @a( %x :tensor< N x(H+1)x  W xf32 , NHW> ,gamma:f32=2.2,m:word in[a ,b]=a )->( %y:tensor<NxHxWxf32> ){   // doc
where H mod 2==0,W>3



memory{border=replicate,align=64,%y{inplace=%x}}
compile{edges=free}
  compute{
        let s=1/sqrt(f32( W ))
%long[n,h]=- %x[n,h,0] + 2*%x[n,h-1,0] * (-3)**2   //c1
     // inside
  %y[n,h,w]=select(n==0 and not(h<3),a mod(b),
mod(a,b)) + sum[k<3,j in 0 .. 4 where k>j](%x[n,h,k] -1)
+ 3
%z=nth[i<3](%x[i,0,0],-1)      // c2
}
}
pipeline @p(%a:tensor<N x?x...xf32>,param %b: tensor<f32>)->(%c: tensor<f32>)on cuda : 0{
%c,%d=@a(%a,[%b , %a]along N){gamma=3.5,m=a}on cpu as l after %d,%e plan{wait=[1,2],%c{offset=3}}reason="r  r" loc( "f.plir" : 3:4 )
     %e=%a
%f=@a(
%a,
%b)
}
target @t{arch=sm_75}
target @tt{arch=sm_75}
// end'''
TIDY = '''import std.image
op @a(%x: tensor<Nx(H+1)xWxf32, NHW>, gamma: f32 = 2.2, m: word in [a, b] = a) -> (%y: tensor<NxHxWxf32>) {  // doc
  where H mod 2 == 0, W > 3

  memory  { border = replicate, align = 64, %y { inplace = %x } }
  compile { edges = free }
  compute {
    let s = 1/sqrt(f32(W))
    %long[n, h] = -%x[n, h, 0] + 2*%x[n, h-1, 0] * (-3)**2  //c1
    // inside
    %y[n, h, w] = select(n == 0 and not (h < 3), a mod (b),
                         mod(a, b)) + sum[k < 3, j in 0..4 where k > j](%x[n, h, k] - 1)
        + 3
    %z          = nth[i < 3](%x[i, 0, 0], -1)  // c2
  }
}
pipeline @p(%a: tensor<Nx?x...xf32>, param %b: tensor<f32>) -> (%c: tensor<f32>) on cuda:0 {
  %c, %d = @a(%a, [%b, %a] along N) {gamma = 3.5, m = a} on cpu as l after %d, %e plan { wait = [1, 2], %c { offset = 3 } } reason = "r  r" loc("f.plir":3:4)
  %e = %a
  %f = @a(
      %a,
      %b)
}
target @t  { arch = sm_75 }
target @tt { arch = sm_75 }
// end
'''


def test_an_ugly_text() -> None:
    assert format_text(UGLY, "t") == TIDY
    assert format_text(TIDY, "t") == TIDY
    assert format_text("\ufeff" + UGLY.replace("\n", "\r\n"), "t") == TIDY
    assert format_text(UGLY.encode(), "t") == TIDY


def test_the_cases_stay_as_they_are() -> None:
    """Of some 1,200 hand-written lines hardly one is changed."""
    changed, lines = 0, 0
    for path in CASES:
        before = path.read_text(encoding="utf-8").split("\n")
        after = format_text("\n".join(before), "t").split("\n")
        assert len(after) == len(before)
        lines += len(before)
        changed += sum(a != b for a, b in zip(after, before, strict=True))
    assert lines > 1000
    assert changed <= 8


@pytest.mark.parametrize("seed", range(30))
def test_spoiled_spaces_are_mended(seed: int) -> None:
    """Whatever spaces there were at the beginning of lines and around commas: the same program, comments included, and then nothing changes any more."""
    rng = random.Random(seed)
    text = CASES[seed % len(CASES)].read_text(encoding="utf-8")
    spoiled = re.sub(r"//.*|^ +(?=[^/ ])|(?<=,) ", lambda m: m[0] if "/" in m[0] else " " * rng.randrange(9), text, flags=re.MULTILINE)
    tidy = format_text(spoiled, "t")
    assert parse(tidy, "t") == parse(text, "t")
    assert re.findall("//.*", tidy) == re.findall("//.*", text)
    assert tidy.count("\n") == spoiled.count("\n")
    assert format_text(tidy, "t") == tidy


def test_blank_lines() -> None:
    assert format_text("\n\nimport a\n\n\n\nimport b\n\n", "t") == "import a\n\nimport b\n"
    assert format_text("", "t") == ""
    assert format_text("\n\n", "t") == ""
    assert format_text("// only a comment", "t") == "// only a comment\n"


def test_alignment_follows_a_renamed_edge() -> None:
    before = "pipeline @p() -> () {\n  %a   = @f()\n  %bcd = @f()\n  %e   = @f()\n}\n"
    assert format_text(before.replace("%e   ", "%edge   "), "t") == before.replace("%e   =", "%edge =")
    assert format_text(before.replace("%a   ", "%a "), "t") == before


def test_wrong_programs_are_refused() -> None:
    with pytest.raises(ProgramError):
        format_text("op @f(", "t")
