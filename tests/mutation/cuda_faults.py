"""Faults in the emitter for CUDA, its prelude, its launches, and the schedules for a GPU. The emulated GPU has to find each, on numbers or on accesses."""
from __future__ import annotations

from tests.mutation.faults import Fault

NUMBERS, FUNCTIONS, THREADS, FACTS, GEOMETRY, KINDS, BOUNDS, LITERALS = (f"backends/cuda/{n}" for n in (
    "prelude/numbers.cuh", "prelude/functions.cuh", "prelude/threads.cuh", "target_facts.py", "geometry.py", "kinds.py", "bounds.py", "literals.py"))
EMIT, STMT, EXPR, USER = (f"backends/cuda/{n}.py" for n in ("emit", "emit_stmt", "emit_expr", "user_launch"))
BORDERS, TEAM, NESTS, RECUR, PRODUCT, TURN, SORT, FLAT = (f"backends/loops/{n}.py" for n in (
    "borders", "gpu/team", "gpu/nests", "gpu/recur", "gpu/product", "gpu/turn", "gpu/sort", "gpu/flat"))
WINDOW, PACK, MMA = (f"backends/loops/gpu/{n}.py" for n in ("window", "pack", "mma"))
DERIVE = "passes/scheduling/parts.py"


def seed(name: str, file: str, old: str, new: str) -> Fault:
    """One of them."""
    return Fault(name, file, old, new, suite="cuda")


CUDA_FAULTS = [
    # ------------------------------------------------------------------------------------------------- barriers, warps, shared memory
    seed("partial results are overwritten before all have read them", THREADS, "  __syncthreads();  // what the call before left there has been read\n", ""),
    seed("partial results are read before they are written", THREADS, "  if (lane == 0) partial[warp] = value;\n  __syncthreads();\n", "  if (lane == 0) partial[warp] = value;\n"),
    seed("a shuffle names half of the lanes", FACTS, '"PL_SHUFFLE_DOWN(value, lanes)": "__shfl_down_sync(0xffffffffu,', '"PL_SHUFFLE_DOWN(value, lanes)": "__shfl_down_sync(0x0000ffffu,'),
    seed("lanes are combined in one step too few", THREADS, "for (int n = 1; n < PL_LANES; n *= 2) value = Rule", "for (int n = 2; n < PL_LANES; n *= 2) value = Rule"),
    seed("no barrier between the steps of a recurrence", RECUR, "                    e.raw(form.Barrier())\n", "                    pass\n"),
    seed("no barrier behind the square of a transposition", TURN, "        e.raw(form.Barrier())\n", ""),
    seed("no barrier before the next tiles of a product", PRODUCT, "            e.raw(form.Await(cut.stages - 2))\n            e.raw(form.Barrier())\n", "            e.raw(form.Await(cut.stages - 2))\n"),
    seed("no barrier between the levels of sorting", SORT, "                e.raw(form.Barrier())\n", ""),
    seed("shared memory of the next turn overtakes the last one", STMT, 'self.line(f"{self.facts.barrier}  // what the last turn left in shared memory has been read")', "pass"),
    seed("every thread stores what is the leader's", STMT, "return self.uniform and not self.e.places[s.buffer if isinstance(s, Store) else s.to].private", "return False"),
    # ---------------------------------------------------------------------------------------------------------------- loops and tails
    seed("the loop over the grid strides by one block", STMT, '"pl::grid_thread()", "pl::grid_threads()"', '"pl::grid_thread()", "pl::threads()"'),
    seed("the loop over blocks does not stride", STMT, 'self._strided(loop, "pl::block()", "pl::blocks()")', 'self._strided(loop, "pl::block()", "pl::blocks() + 1")'),
    seed("loops run one turn too far", STMT, "{var} < {limit}; {advance", "{var} <= {limit}; {advance"),
    seed("the last block, which is not full, does nothing", THREADS, "PL_DEVICE index_t grid_threads() { return blocks() * threads(); }", "PL_DEVICE index_t grid_threads() { return blocks() * threads() + threads(); }"),
    seed("the edge of a transposition is not guarded", TURN, 'e.when(e.op("and", e.op("<", i, self.axes[self.down].n), e.op("<", j, self.axes[self.across].n)))', 'e.when(e.op("<", j, self.axes[self.across].n))'),
    seed("rows behind the end are computed with a run", WINDOW, 'full = rows = e.op("<=", e.op("+", first, i64(w.rows)), self.down.n)', 'full = rows = e.op("<", first, self.down.n)'),
    seed("one place beside a run is taken for inside", WINDOW, "for k in range(size)}", "for k in range(size + 1)}"),
    Fault("neighbours move from any place", PACK, "if starts and self._multiple(buffer, terms, size):", "if starts:"),  # seen by the machine of tests/unit/loops
    seed("the last tile of a product is left out", PRODUCT, 'self.e.op("+", axis.total, i64(size - 1))', "axis.total"),
    seed("terms behind the end of a tile count", MMA, 'e.op("<", term, nest.depth.total))\n\n            def value()', 'e.op("<=", term, nest.depth.total))\n\n            def value()'),
    seed("a flat index is taken apart with the wrong extent", FLAT, 'place, left = e.op("rest", left, n, hint=name), e.op("quot", left, n)', 'place, left = e.op("rest", left, n, hint=name), e.op("quot", left, e.op("+", n, i64(1)))'),
    seed("the last part of a long reduction is lost", DERIVE, 'parts = _do("ceildiv", n, size)', 'parts = _do("floordiv", n, size)'),
    seed("a round of a long sum begins where the last one began", TEAM, 'with self._terms(b, e.op("min", e.op("+", b, i64(ROUND)), self.flat.total))', 'with self._terms(i64(0), e.op("min", e.op("+", b, i64(ROUND)), self.flat.total))'),
    # -------------------------------------------------------------------------------------------------------------------- index widths
    seed("indices never need 64 bits", GEOMETRY, "return Geometry(turns, not walk.fits,", "return Geometry(turns, False,"),
    seed("the wide version counts in 32 bits", NUMBERS, "using index_t = i64;", "using index_t = int;"),
    seed("an i64 of data is an index of 32 bits", KINDS, '            return self.names.get(x.name) == "index"', "            return True"),
    seed("what only becomes data does not wrap", EXPR, "return found is not None and least <= found[0] and found[1] <= most", "return True"),
    seed("scratch of a thread begins where that of another block begins", THREADS, "const i64 number = i64(blockIdx.x) * threads() + thread();", "const i64 number = thread();"),
    seed("scratch is cut without alignment", THREADS, "at += (count * i64(sizeof(T)) + 15) / 16 * 16;", "at += count * i64(sizeof(T));"),
    # ------------------------------------------------------------------------------------------------------------ values, conversions
    seed("reflect is off by one on the GPU", BORDERS, 'inner, e.op("-", e.op("-", twice, i64(1)), inner))', 'inner, e.op("-", e.op("-", twice, i64(2)), inner))'),
    seed("f16 is cut, not rounded", NUMBERS, "const Bits rounded = (size + ((one << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop;", "const Bits rounded = size >> drop;"),
    seed("ties of narrow floats go up", NUMBERS, "((one << (drop - 1)) - 1) + ((size >> drop) & 1)) >> drop;", "(one << (drop - 1))) >> drop;"),
    seed("an i64 becomes bf16 by way of a double", NUMBERS, "explicit PL_MEMBER Narrow(i64 x) : Narrow(odd_double(x)) {}", "explicit PL_MEMBER Narrow(i64 x) : Narrow(double(x)) {}"),
    seed("max of floats loses a NaN", FUNCTIONS, "#else\n  return a > b || a != a ? a : b;", "#else\n  return a > b ? a : b;"),
    seed("a NaN becomes an integer as it is", NUMBERS, "  x = x == x ? x : Real(0);\n", ""),
    seed("sat_u8 ends at 254", NUMBERS, "PL_DEVICE int sat_u8(Int x) { return sat_range<0, 255>(x); }", "PL_DEVICE int sat_u8(Int x) { return sat_range<0, 254>(x); }"),
    seed("integer quotients are cut on the GPU", NUMBERS, "  return r != 0 && (r ^ b) < 0 ? q - 1 : q;", "  return q;"),
    seed("argmax takes the last of equals on the GPU", THREADS, "return a == b ? i < j : LARGEST", "return a == b ? i > j : LARGEST"),
    seed("argmax takes the last NaN", THREADS, "(b == b || i < j)", "(b == b || i > j)"),
    seed("-0.0 is written 0.0", LITERALS, "    if value == 0:\n        return str(value)\n", '    if value == 0:\n        return "0.0"\n'),
    seed("a - (b - c) loses its parentheses", EXPR, "{self.text(x.args[1], max(inner, own + 1))}", "{self.text(x.args[1], inner)}"),
    seed("narrow integers do not wrap", EXPR, "fits = source is BOOL or (least <= low and high <= most)", "fits = True"),
    # ----------------------------------------------------------------------------------------------------------------- launches, users
    seed("every failure is recorded, not the first", THREADS, "  if (atomicCAS(&status->taken, 0ull, 1ull) != 0) return;\n", "  status->taken = 1;\n"),
    seed("attributes of a user's kernel lie without alignment", USER, 'out += b"\\0" * (-len(out) % size) + ', "out += "),
    seed("too many buffers are passed one by one but read from a table", EMIT, 'w.head.append(f"  {const}{memory_type(b.memory)}*{restrict} {name} = static_cast<{const}{memory_type(b.memory)}*>(buffers[{n}]);")',
          'w.head.append(f"  {const}{memory_type(b.memory)}*{restrict} {name} = static_cast<{const}{memory_type(b.memory)}*>(buffers[{n} + 1]);")'),
]
