"""The part of the CPU run time that is machine code: running kernels in order, and sharing a parallel loop among threads. LLVM IR, once a process.

`run(ptr steps, i64 n, ptr pool, i64 threads, ptr status)` runs a plan: an array of steps of five words (function, function that counts or null, frame,
smallest share, whether threads may share it). It stops behind a step that wrote to the status block and returns that step's number, -1 at the end.
`worker(ptr pool)` is what a thread of the pool sits in.

A pool is an array of lines of 16 words (two cache lines apart, so that no two words that different threads write meet):
    line 0  gate      job number << 16 | open << 15 | workers inside
    line 1  busy      a caller is using the pool; others run their loops alone
    line 2  the job   function, frame, iterations, share, most workers
    line 3  next      the first iteration that nobody has taken
    line 4  sequence  32 bits to sleep on, counts jobs
    line 5  sleepers
    line 6  stop
A job is written while the gate is shut. A worker enters by exchanging the gate for one with one more inside, which fails unless it is open; the
caller shuts it when nothing is left to take and waits until nobody is inside. So a worker that wakes late disturbs nothing.
"""
from __future__ import annotations

import platform
import sys
from functools import cache

POOL_LINES = 7
LINE_WORDS = 16
SPINS = 20000
"""Turns of waiting before a worker goes to sleep: some tenths of a millisecond."""

YIELD = 2000
"""Turns that a caller waits for the last worker before it lets others have the processor: the worker may be waiting for just that one."""

PARTS = 8
"""Parts of a loop for each thread: enough that one who is held up does not hold up the others."""

_FUTEX = {"x86_64": 202, "aarch64": 98}
"""The number of the system call on Linux."""
_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}


def _sleeping() -> tuple[str, str, str]:
    """Declarations, and how a worker sleeps and is woken. Where there is no futex it naps."""
    number = _FUTEX.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        return "declare i32 @usleep(i32)\n", "  %slept = call i32 @usleep(i32 100)\n", ""
    return ("declare i64 @syscall(i64, ...)\n",
            f"  %slept = call i64 (i64, ...) @syscall(i64 {number}, ptr %sequence, i32 128, i32 %seen, ptr null)\n",
            f"  %woken = call i64 (i64, ...) @syscall(i64 {number}, ptr %sequence, i32 129, i32 2147483647)\n")


@cache
def driver_text() -> str:
    """The module without its head."""
    declarations, sleep, wake = _sleeping()
    pause = _PAUSE.get(platform.machine())
    rest = f'  call void asm sideeffect "{pause}", "~{{memory}}"()\n' if pause else ""
    text = _TEXT
    for mark, value in (("  SLEEP\n", sleep), ("  WAKE\n", wake), ("  PAUSE\n", rest), ("SPINS", SPINS), ("YIELD", YIELD), ("PARTS", PARTS)):
        text = text.replace(mark, str(value))
    for name, line in (("GATE", 0), ("BUSY", 1), ("JOB", 2), ("NEXT", 3), ("SEQUENCE", 4), ("SLEEPERS", 5), ("STOP", 6)):
        text = text.replace(f"@{name}@", f"getelementptr inbounds i64, ptr %pool, i64 {line * LINE_WORDS}")
    return declarations + text


_TEXT = """
define internal void @work(ptr %pool) noinline nounwind {
entry:
  %job = @JOB@
  %next = @NEXT@
  %fn = load ptr, ptr %job
  %frame.at = getelementptr inbounds i64, ptr %job, i64 1
  %frame = load ptr, ptr %frame.at
  %total.at = getelementptr inbounds i64, ptr %job, i64 2
  %total = load i64, ptr %total.at
  %share.at = getelementptr inbounds i64, ptr %job, i64 3
  %share = load i64, ptr %share.at
  br label %take
take:
  %begin = atomicrmw add ptr %next, i64 %share monotonic
  %left = icmp slt i64 %begin, %total
  br i1 %left, label %run, label %leave
run:
  %want = add i64 %begin, %share
  %end = call i64 @llvm.smin.i64(i64 %want, i64 %total)
  call void %fn(ptr %frame, i64 %begin, i64 %end)
  br label %take
leave:
  ret void
}

define internal void @fork(ptr %pool, ptr %fn, ptr %frame, i64 %total, i64 %share, i64 %workers) noinline nounwind {
entry:
  %gate = @GATE@
  %job = @JOB@
  %next = @NEXT@
  %sequence = @SEQUENCE@
  %sleepers = @SLEEPERS@
  store ptr %fn, ptr %job
  %frame.at = getelementptr inbounds i64, ptr %job, i64 1
  store ptr %frame, ptr %frame.at
  %total.at = getelementptr inbounds i64, ptr %job, i64 2
  store i64 %total, ptr %total.at
  %share.at = getelementptr inbounds i64, ptr %job, i64 3
  store i64 %share, ptr %share.at
  %workers.at = getelementptr inbounds i64, ptr %job, i64 4
  store i64 %workers, ptr %workers.at
  store i64 0, ptr %next
  %old = load atomic i64, ptr %gate monotonic, align 8
  %number = lshr i64 %old, 16
  %number.next = add i64 %number, 1
  %shifted = shl i64 %number.next, 16
  %opened = or i64 %shifted, 32768
  store atomic i64 %opened, ptr %gate seq_cst, align 8
  %counted = atomicrmw add ptr %sequence, i32 1 seq_cst
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %any = icmp sgt i64 %asleep, 0
  br i1 %any, label %wake, label %share.it
wake:
  WAKE
  br label %share.it
share.it:
  call void @work(ptr %pool)
  %closing = atomicrmw and ptr %gate, i64 -32769 acq_rel
  br label %wait
wait:
  %turn = phi i64 [ 0, %share.it ], [ %turn.next, %spin ], [ %turn.next, %yield ]
  %now = load atomic i64, ptr %gate acquire, align 8
  %inside = and i64 %now, 32767
  %done = icmp eq i64 %inside, 0
  %turn.next = add i64 %turn, 1
  %patient = icmp slt i64 %turn, YIELD
  br i1 %done, label %leave, label %stay
stay:
  br i1 %patient, label %spin, label %yield
spin:
  PAUSE
  br label %wait
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
leave:
  ret void
}

define void @worker(ptr %pool) nounwind {
entry:
  %gate = @GATE@
  %job = @JOB@
  %sequence = @SEQUENCE@
  %sleepers = @SLEEPERS@
  %stop = @STOP@
  %limit.at = getelementptr inbounds i64, ptr %job, i64 4
  br label %fresh
fresh:
  %last = phi i64 [ 0, %entry ], [ %last.kept, %rested ], [ %this, %finished ]
  br label %look
look:
  %turn = phi i64 [ 0, %fresh ], [ %turn.next, %again ]
  %stopped = load atomic i64, ptr %stop monotonic, align 8
  %over = icmp ne i64 %stopped, 0
  br i1 %over, label %leave, label %see
see:
  %g = load atomic i64, ptr %gate acquire, align 8
  %this = lshr i64 %g, 16
  %open = and i64 %g, 32768
  %is.open = icmp ne i64 %open, 0
  %is.new = icmp ne i64 %this, %last
  %inside = and i64 %g, 32767
  %limit = load atomic i64, ptr %limit.at monotonic, align 8
  %has.room = icmp slt i64 %inside, %limit
  %a = and i1 %is.open, %is.new
  %b = and i1 %a, %has.room
  br i1 %b, label %enter, label %idle
enter:
  %more = add i64 %g, 1
  %pair = cmpxchg ptr %gate, i64 %g, i64 %more acq_rel monotonic
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %do, label %again
do:
  call void @work(ptr %pool)
  %out = atomicrmw sub ptr %gate, i64 1 release
  br label %finished
finished:
  br label %fresh
idle:
  PAUSE
  %tired = icmp sgt i64 %turn, SPINS
  br i1 %tired, label %rest, label %again
again:
  %turn.next = add i64 %turn, 1
  br label %look
rest:
  %down = atomicrmw add ptr %sleepers, i64 1 seq_cst
  %seen = load atomic i32, ptr %sequence seq_cst, align 8
  %g2 = load atomic i64, ptr %gate seq_cst, align 8
  %this2 = lshr i64 %g2, 16
  %open2 = and i64 %g2, 32768
  %is.open2 = icmp ne i64 %open2, 0
  %is.new2 = icmp ne i64 %this2, %last
  %work2 = and i1 %is.open2, %is.new2
  %stop2 = load atomic i64, ptr %stop seq_cst, align 8
  %go2 = icmp ne i64 %stop2, 0
  %stay = or i1 %work2, %go2
  br i1 %stay, label %up, label %sleep
sleep:
  SLEEP
  br label %up
up:
  %rose = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  br label %rested
rested:
  %last.kept = phi i64 [ %last, %up ]
  br label %fresh
leave:
  ret void
}

define void @halt(ptr %pool) nounwind {
  %stop = @STOP@
  %sequence = @SEQUENCE@
  store atomic i64 1, ptr %stop seq_cst, align 8
  %counted = atomicrmw add ptr %sequence, i32 1 seq_cst
  WAKE
  ret void
}

define i64 @run(ptr %steps, i64 %n, ptr %pool, i64 %threads, ptr %status) nounwind {
entry:
  %busy = @BUSY@
  %workers = sub i64 %threads, 1
  %wanted = icmp sgt i64 %workers, 0
  br i1 %wanted, label %try, label %start
try:
  %pair = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic
  %got = extractvalue { i64, i1 } %pair, 1
  br label %start
start:
  %mine = phi i1 [ false, %entry ], [ %got, %try ]
  br label %head
head:
  %k = phi i64 [ 0, %start ], [ %k.next, %next ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %step, label %end
step:
  %at = mul i64 %k, 5
  %p0 = getelementptr inbounds i64, ptr %steps, i64 %at
  %fn = load ptr, ptr %p0
  %p1 = getelementptr inbounds i64, ptr %p0, i64 1
  %count = load ptr, ptr %p1
  %p2 = getelementptr inbounds i64, ptr %p0, i64 2
  %frame = load ptr, ptr %p2
  %plain = icmp eq ptr %count, null
  br i1 %plain, label %once, label %loop
once:
  call void %fn(ptr %frame, i64 0, i64 1)
  br label %next
loop:
  %total = call i64 %count(ptr %frame)
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %decide, label %next
decide:
  %p3 = getelementptr inbounds i64, ptr %p0, i64 3
  %least = load i64, ptr %p3
  %p4 = getelementptr inbounds i64, ptr %p0, i64 4
  %may = load i64, ptr %p4
  %may.bit = icmp ne i64 %may, 0
  %several = icmp sgt i64 %total, %least
  %x = and i1 %may.bit, %several
  %y = and i1 %x, %mine
  br i1 %y, label %split, label %alone
alone:
  call void %fn(ptr %frame, i64 0, i64 %total)
  br label %next
split:
  %parts = mul i64 %threads, PARTS
  %up = add i64 %total, %parts
  %up1 = sub i64 %up, 1
  %even = udiv i64 %up1, %parts
  %share = call i64 @llvm.smax.i64(i64 %even, i64 %least)
  call void @fork(ptr %pool, ptr %fn, ptr %frame, i64 %total, i64 %share, i64 %workers)
  br label %next
next:
  %k.next = add i64 %k, 1
  %taken = load atomic i64, ptr %status monotonic, align 8
  %fine = icmp eq i64 %taken, 0
  br i1 %fine, label %head, label %end
end:
  %answer = phi i64 [ -1, %head ], [ %k, %next ]
  br i1 %mine, label %release, label %leave
release:
  store atomic i64 0, ptr %busy release, align 8
  br label %leave
leave:
  ret i64 %answer
}

declare i32 @sched_yield()
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""
