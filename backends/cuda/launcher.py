"""The walk over a table of commands, as machine code: what stands between a call from Python and the driver.

A call of CUDA's driver through Python costs some microseconds, most of them Python's; here a whole run costs one such call. The walk stops at the first
command that the driver refuses. LLVM IR, compiled once and kept in the cache of compiled code.

`issue(commands, n, streams, table, context)` makes `context` current, walks, and restores what was current; it returns 0, or the error code, with the number
of the command from bit 32 on, and bit 62 where that counts in the inner table of a `CALL`. An error before the first command has the number 2^29 - 1.
`table` holds the addresses of the driver's functions in the order of `FUNCTIONS`.
"""
from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from pipelink_ir.backends.cuda.driver import CALL, COPY, FILL, FOREIGN, LAUNCH, RECORD, REPLAY, REPOINT, WAIT, WORDS

FUNCTIONS = ("cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuLaunchKernel", "cuStreamWaitEvent", "cuEventRecord", "cuMemcpyAsync", "cuMemsetD8Async",
             "cuGraphLaunch", "cuGraphExecKernelNodeSetParams_v2")
"""What the walk calls. A function that an old driver does not have is 0, and may not be asked for."""

INNER = 1 << 62
NO_COMMAND = (1 << 29) - 1

_ISSUE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


@cache
def issue_function() -> Any:
    """The compiled walk, as a function that lets go of Python's lock while it runs."""
    from pipelink_ir.backends.cpu import jit
    target = jit.host()
    triple, layout = jit.layout(target)
    text = f'target datalayout = "{layout}"\ntarget triple = "{triple}"\n' + walk_text()
    library = jit.Library([jit.compile_object(text, target)], ["issue"])
    return _keep(_ISSUE(library.address("issue")), library)


def _keep(function: Any, library: Any) -> Any:
    function.library = library
    return function


def unpack(answer: int) -> tuple[int, int, bool]:
    """What `issue` returned: the error code (0: none), the number of the command (-1: before any), whether it is one of an inner table."""
    number = (answer >> 32) & NO_COMMAND
    return answer & 0xffffffff, -1 if number == NO_COMMAND else number, bool(answer & INNER)


def _word(block: str, n: int, kind: str = "i64") -> str:
    """Loads word `n` of the command as `%<block><n>`."""
    return f"  %{block}{n}.at = getelementptr inbounds i64, ptr %c, i64 {n}\n  %{block}{n} = load {kind}, ptr %{block}{n}.at\n"


def _stream(block: str, n: int) -> str:
    """Looks up the stream that word `n` names."""
    return _word(block, n) + f"  %{block}.s.at = getelementptr inbounds ptr, ptr %streams, i64 %{block}{n}\n  %{block}.s = load ptr, ptr %{block}.s.at\n"


def _function(block: str, name: str) -> str:
    return f"  %{block}.f.at = getelementptr inbounds ptr, ptr %table, i64 {FUNCTIONS.index(name)}\n  %{block}.f = load ptr, ptr %{block}.f.at\n"


def _case(block: str, name: str, loads: str, arguments: str) -> str:
    return f"{block}:\n{_function(block, name)}{loads}  %{block}.r = call i32 %{block}.f({arguments})\n  br label %next\n"


@cache
def walk_text() -> str:
    """The module without its head."""
    dims = "".join(f"  %l.d{n} = trunc i64 %l{n} to i32\n" for n in range(2, 9))
    launch = _case("l", "cuLaunchKernel", _word("l", 1, "ptr") + "".join(_word("l", n) for n in range(2, 9)) + dims + _stream("l", 9) + _word("l", 10, "ptr"),
                   "ptr %l1, " + ", ".join(f"i32 %l.d{n}" for n in range(2, 9)) + ", ptr %l.s, ptr %l10, ptr null")
    wait = _case("w", "cuStreamWaitEvent", _stream("w", 1) + _word("w", 2, "ptr"), "ptr %w.s, ptr %w2, i32 0")
    record = _case("e", "cuEventRecord", _word("e", 1, "ptr") + _stream("e", 2), "ptr %e1, ptr %e.s")
    copy = _case("m", "cuMemcpyAsync", "".join(_word("m", n) for n in (1, 2, 3)) + _stream("m", 4), "i64 %m1, i64 %m2, i64 %m3, ptr %m.s")
    fill = _case("f", "cuMemsetD8Async", "".join(_word("f", n) for n in (1, 2, 3)) + "  %f.b = trunc i64 %f2 to i8\n" + _stream("f", 4),
                 "i64 %f1, i8 %f.b, i64 %f3, ptr %f.s")
    replay = _case("g", "cuGraphLaunch", _word("g", 1, "ptr") + _stream("g", 2), "ptr %g1, ptr %g.s")
    repoint = _case("p", "cuGraphExecKernelNodeSetParams_v2", "".join(_word("p", n, "ptr") for n in (1, 2, 3)), "ptr %p1, ptr %p2, ptr %p3")
    foreign = f"x:\n{_word('x', 1, 'ptr')}{_word('x', 2, 'ptr')}{_stream('x', 3)}  %x.r = call i32 %x1(ptr %x2, ptr %x.s)\n  br label %next\n"
    cases = {LAUNCH: "l", WAIT: "w", RECORD: "e", COPY: "m", FILL: "f", CALL: "inner", REPLAY: "g", REPOINT: "p", FOREIGN: "x"}
    table = " ".join(f"i64 {kind}, label %{block}" for kind, block in cases.items())
    answers = ", ".join(f"[ %{block}.r, %{block} ]" for block in cases.values() if block != "inner")
    return f"""
define internal i64 @walk(ptr %commands, i64 %n, ptr %streams, ptr %table) {{
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %done ], [ %k.next.inner, %inner.fine ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %step, label %fine
step:
  %at = mul i64 %k, {WORDS}
  %c = getelementptr inbounds i64, ptr %commands, i64 %at
  %kind = load i64, ptr %c
  switch i64 %kind, label %unknown [ {table} ]
{launch}{wait}{record}{copy}{fill}{replay}{repoint}{foreign}
inner:
{_word("i", 1, "ptr")}{_word("i", 2)}
  %inner.r = call i64 @walk(ptr %i1, i64 %i2, ptr %streams, ptr %table)
  %inner.ok = icmp eq i64 %inner.r, 0
  %k.next.inner = add i64 %k, 1
  br i1 %inner.ok, label %inner.fine, label %inner.failed
inner.fine:
  br label %head
inner.failed:
  %inner.marked = or i64 %inner.r, {INNER}
  ret i64 %inner.marked
next:
  %r = phi i32 {answers}
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %done, label %failed
done:
  %k.next = add i64 %k, 1
  br label %head
failed:
  %code = zext i32 %r to i64
  %place = shl i64 %k, 32
  %answer = or i64 %place, %code
  ret i64 %answer
unknown:
  ret i64 {(NO_COMMAND << 32) | 1}
fine:
  ret i64 0
}}

define i64 @issue(ptr %commands, i64 %n, ptr %streams, ptr %table, ptr %context) {{
entry:
  %was = alloca ptr
  %push = load ptr, ptr %table
  %pushed = call i32 %push(ptr %context)
  %ok = icmp eq i32 %pushed, 0
  br i1 %ok, label %go, label %refused
go:
  %answer = call i64 @walk(ptr %commands, i64 %n, ptr %streams, ptr %table)
  %pop.at = getelementptr inbounds ptr, ptr %table, i64 1
  %pop = load ptr, ptr %pop.at
  %popped = call i32 %pop(ptr %was)
  ret i64 %answer
refused:
  %code = zext i32 %pushed to i64
  %none = or i64 %code, {NO_COMMAND << 32}
  ret i64 %none
}}
"""
