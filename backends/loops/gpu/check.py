"""The rules at the head of `form.py` for kernels of a GPU: where loops over blocks and threads, barriers and shared memory may stand, and what may differ
between the threads of a block ("varying")."""
from __future__ import annotations

from collections.abc import Callable

from pipelink_ir.backends.loops import form
from pipelink_ir.backends.loops.contents import together
from pipelink_ir.backends.loops.tidy import THREAD, blocks, exprs, refs, written

MOST_THREADS = 1024
COUNTS = {"sum": 1, "prod": 1, "max": 1, "min": 1, "any": 1, "all": 1, "argmax": 2, "argmin": 2}
"""How many names each `Combine` takes."""
Need = Callable[[bool, str], None]


def check_device(kernel: form.Kernel, need: Need) -> None:
    """What holds for the device of a kernel. `need` is told what has to hold, and the message if it does not."""
    if kernel.device == "cpu":
        _serial(kernel.body, ("serial", "parallel"), need)
        return
    last = kernel.body[-1] if kernel.body else None
    need(all(isinstance(s, form.Let) for s in kernel.body[:-1]), "something but a Let stands before the loop of a GPU kernel")
    need(0 <= kernel.threads <= MOST_THREADS, f"a block cannot have {kernel.threads} threads")
    need(kernel.team is None or kernel.threads > 0, "a team has no bound")
    if isinstance(last, form.For) and last.kind == "grid":
        _serial(last.body, ("serial",), need)
    elif isinstance(last, form.For) and last.kind == "block":
        _Uniform(need, kernel.threads > 0).block(last.body, {THREAD})
    else:
        need(False, "a GPU kernel has no loop over its grid or its blocks")


def _serial(body: form.Block, kinds: tuple[str, ...], need: Need, traded: bool = False) -> None:
    """Statements of one thread. `traded`: all threads of a warp come there together."""
    for s in body:
        need(not isinstance(s, form.CopyAsync) or kinds == ("serial",), "a copy stands outside of the threads of a block")
        own = kinds == ("serial",) and isinstance(s, form.Commit | form.Await)  # copies are those of a thread
        need(not together(s) or own, "one thread cannot wait for others" if isinstance(s, form.Barrier | form.Combine) else
             "one thread has no sums that others have a part of" if isinstance(s, form.Own) else "one thread has no fragment of a matrix")
        need(not isinstance(s, form.Trade) or traded, "threads trade where not all of them come together")
        warp = isinstance(s, form.StripMultiply | form.FewMultiply | form.WindowMultiply)
        need(not warp or traded, "a warp multiplies where not all of its lanes come together")
        need(not isinstance(s, form.Alloc) or not s.shared, "one thread cannot share memory")
        need(not isinstance(s, form.For) or s.kind in kinds, f"a loop of kind {s.kind if isinstance(s, form.For) else ''} stands inside the work of one thread")
        for b in blocks(s):
            _serial(b, kinds, need, traded and not isinstance(s, form.If))


class _Uniform:
    """Statements that all threads of a block run, with the set of names that vary."""

    def __init__(self, need: Need, exact: bool) -> None:
        self.need, self.exact = need, exact
        self.own: set[str] = set()
        """Scratch of the uniform statements that is not shared."""
        self.kept: set[str] = set()
        """What of it the threads store to, each for itself, …"""
        self.alike: set[str] = set()
        """… and what all of them store to alike."""

    def block(self, body: form.Block, varying: set[str]) -> None:
        for s in body:
            self.statement(s, varying)

    def statement(self, s: form.Stmt, varying: set[str]) -> None:
        if isinstance(s, form.Let | form.Var | form.Assign):
            differs = any(n in varying for x in exprs(s) for n in refs(x))
            (varying.add if differs else varying.discard)(s.name)
            return
        if isinstance(s, form.Combine):
            self.need(len(s.names) == COUNTS.get(s.fn), f"'{s.fn}' does not combine {len(s.names)} names")
            self.need(not any(n in varying for x in exprs(s) for n in refs(x)), f"whether '{s.fn}' combines groups differs between threads")
            (varying.difference_update if s.apart is None else varying.update)(s.names)
            return
        alone = form.Trade | form.StripLine | form.StripMultiply | form.Words | form.FewMultiply | form.Pack | form.WindowMultiply
        self.need(not isinstance(s, alone), "threads trade what is each one's own, inside a loop over threads")
        self.need(not isinstance(s, form.CopyAsync), "a copy is begun by one thread, inside a loop over threads")
        for x in exprs(s):
            for n in refs(x):
                self.need(n not in varying and n.removeprefix("%") not in self.kept, f"a uniform statement looks at {n}, which differs between threads")
        if isinstance(s, form.Store | form.Move):
            self.need(not isinstance(s, form.Move) or s.source not in self.kept, "a uniform statement moves what differs between threads")
            self.alike.add(written(s))
        if isinstance(s, form.Contract):
            self.kept.add(s.sums)
        if isinstance(s, form.Own):
            self.need(self.own.issuperset(s.targets) and self.alike.isdisjoint(s.targets), f"{', '.join(s.targets)} are not each thread's own")
            self.kept.update(s.targets)
        if isinstance(s, form.Alloc):
            self.need(not s.shared or isinstance(s.size, form.Const), f"the size of the shared memory {s.name} is not constant")
            if not s.shared:
                self.own.add(s.name)
        elif isinstance(s, form.If):
            other = set(varying)
            self.block(s.then, varying)
            self.block(s.other, other)
            varying |= other
        elif isinstance(s, form.For):
            self.loop(s, varying)

    def loop(self, s: form.For, varying: set[str]) -> None:
        self.need(s.kind in ("serial", "thread", "each"), f"a loop of kind {s.kind} stands inside a block")
        if s.kind in ("thread", "each"):
            self.need(s.kind == "thread" or self.exact, f"the number of threads that run the loop over {s.var} is not known")
            _serial(s.body, ("serial",), self.need, s.kind == "each")
            self.thread(s.body, set(), varying, s.kind == "each")
            return
        while True:
            before = set(varying)
            self.block(s.body, varying)
            varying |= before
            if varying == before:
                return

    def thread(self, body: form.Block, bound: set[str], varying: set[str], each: bool) -> None:
        """The work of one thread: what it assigns outside of its own block varies from then on."""
        for s in body:
            if isinstance(s, form.Var):
                bound.add(s.name)
            elif isinstance(s, form.Assign) and s.name not in bound:
                varying.add(s.name)
            elif isinstance(s, form.Store | form.Move) and written(s) in self.own:
                self.need(each and written(s) not in self.alike, f"a thread stores to the scratch {written(s)} of the uniform statements")
                self.kept.add(written(s))
            read = {n for x in exprs(s) for n in refs(x)} | ({"%" + s.source} if isinstance(s, form.Move) else set())
            self.need(each or not any("%" + n in read for n in self.kept), "a thread looks at what another may have kept")
            for b in blocks(s):
                self.thread(b, bound, varying, each)
