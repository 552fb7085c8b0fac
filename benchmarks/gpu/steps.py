"""The steps of `gpu_check.py`. Each is a function without arguments that keeps what it finds as it goes (`keep`), and raises where something is wrong."""
from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "cases"
RESULT: Path | None = None
"""Where the result of the step goes."""
ROWS: tuple[str, ...] = ()
PEERS = "usual"
AHEAD = 0.0
"""Which rows of the table are measured (all without words), beside whom, and for how many seconds those are compiled before, side by side."""

_found: dict[str, Any] = {}


def keep(**found: Any) -> None:
    """Remembers findings, also for the case that the time runs out. `summary` is the line that is printed."""
    _found.update(found)
    if RESULT is not None:
        temporary = RESULT.with_suffix(".part")
        temporary.write_text(json.dumps(_found, default=str))
        os.replace(temporary, RESULT)


def fail(message: str) -> None:
    sys.exit(message)


# -------------------------------------------------------------------------------------------------------------------- correctness


def environment() -> None:
    """What the figures belong to."""
    import numpy
    cupy = importlib.import_module("cupy")

    from pipelink_ir.backends.cuda import nvrtc
    from pipelink_ir.backends.cuda.opened import driver
    d = driver()
    facts = d.facts(0)
    runtime = cupy.cuda.runtime
    versions = {"cupy": cupy.__version__, "numpy": numpy.__version__, "nvrtc": nvrtc.version(), "runtime": runtime.runtimeGetVersion(),
                "driver": runtime.driverGetVersion()}
    for name in ("torch", "triton", "llvmlite", "lark"):
        try:
            versions[name] = importlib.import_module(name).__version__
        except ImportError:
            versions[name] = "missing"
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    keep(versions=versions, devices=d.devices(), device={n: getattr(facts, n) for n in facts.__slots__}, cpu=cpu, cores=os.cpu_count(),
         summary=f"{facts.name}, driver {versions['driver']}, NVRTC {versions['nvrtc']}, CuPy {versions['cupy']}")


def check_run() -> None:
    """`check_run.py` over the cases, some at a time."""
    names = sorted(p.stem for p in CASES.glob("*.plir"))

    def one(name: str) -> tuple[str, bool, str]:
        command = [sys.executable, str(CASES / "check_run.py"), str(CASES), "--cmd", f"{sys.executable} -m pipelink_ir.cli", "--target", "cuda", "--only", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT)
        return name, done.returncode == 0, (done.stdout + done.stderr).strip().splitlines()[0] if done.stdout + done.stderr else ""

    said: dict[str, str] = {}
    held = 0
    with ThreadPoolExecutor(6) as pool:
        for name, ok, text in pool.map(one, names):
            said[name] = text
            held += ok
            keep(cases=said, summary=f"{held} of {len(names)} hold")
            print(text, flush=True)
    if held != len(names):
        fail("some do not")


_WRONG = re.compile(r"(?:FAILED|ERROR) (tests/\S+)|^(tests/\S+) (?:FAILED|ERROR)")


def _pytest(arguments: Sequence[str], what: str) -> None:
    """Tests, told of as they end: a run that is stopped has the names of those that failed."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--tb=short", "-rfE", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)
    assert process.stdout is not None
    wrong: dict[str, None] = {}
    passed = 0
    for line in process.stdout:
        found = _WRONG.search(line)
        if found is not None:
            wrong[found[1] or found[2]] = None
        passed += " PASSED" in line
        if " PASSED" not in line or found is not None:
            print(line, end="", flush=True)
        if found is not None or passed % 20 == 0:
            keep(failures=list(wrong), summary=f"{what}: {passed} passed, {len(wrong)} failed so far")
        if re.search(r"\d (?:passed|failed|error).* in ", line):
            keep(failures=list(wrong), summary=f"{what}: {line.strip().strip('= ')}")
    if process.wait() != 0:
        fail("tests failed")


def run_time() -> None:
    """The tests that need the device for themselves."""
    _pytest(["tests/gpu/test_run_time.py", "-x", "--maxfail=12"], "run time")


def gpu_tests() -> None:
    """The others, several at a time."""
    workers = ["-n", "8", "--dist", "worksteal"] if importlib.util.find_spec("xdist") else []
    _pytest(["tests/gpu", "--ignore=tests/gpu/test_run_time.py", "--maxfail=40", *workers], "gpu tests")


AREAS = ("pointwise", "stencils", "reductions", "gathers", "recurrences", "graphs")
PROGRAMS = 2004


def _program(item: tuple[str, int]) -> tuple[str, str | None]:
    from tests.gpu.test_programs import check
    area, number = item
    try:
        check(area, number)
        return f"{area}:{number}", None
    except BaseException as error:
        return f"{area}:{number}", f"{type(error).__name__}: {error}"[:2500]


def fuzz() -> None:
    """Random programs, in several processes."""
    items = [(area, number) for number in range(100, 100 + PROGRAMS // len(AREAS)) for area in AREAS]
    wrong: dict[str, str] = {}
    done = 0
    with ProcessPoolExecutor(min(12, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for name, fault in pool.map(_program, items, chunksize=2):
            done += 1
            if fault is not None:
                wrong[name] = fault
                print(f"{name}: {fault}\n", flush=True)
            if done % 12 == 0 or fault:
                keep(programs=done, wrong=wrong, summary=f"{done} programs, {len(wrong)} wrong")
    keep(programs=done, wrong=wrong, summary=f"{done} programs, {len(wrong)} wrong")
    if wrong:
        fail("programs differ")


# --------------------------------------------------------------------------------------------------------------------------- speed


ADD = """extern "C" __global__ void k(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}"""


def _per_call(call: Callable[[], Any], batch: int, runs: int = 80) -> float:
    """Microseconds of host time for a call: batches that fit into the device's queue, each waited for; the median."""
    cupy = importlib.import_module("cupy")
    took = []
    for _ in range(runs):
        cupy.cuda.runtime.deviceSynchronize()
        begin = time.perf_counter()
        for _ in range(batch):
            call()
        took.append((time.perf_counter() - begin) / batch)
    return 1e6 * statistics.median(took[10:])


def overhead() -> None:
    """What a call costs the host."""
    import numpy as np
    cupy = importlib.import_module("cupy")
    api = importlib.import_module("cupy_backends.cuda.api.driver")

    import pipelink_ir as pl
    from tests.gpu.programs import chain
    out: dict[str, Any] = {}
    x = cupy.ones(1024, cupy.float32)
    raw = cupy.RawKernel(ADD, "k")
    y = cupy.empty_like(x)
    arguments = (y, x, np.int32(1024))
    raw((4,), (256,), arguments)
    out["CuPy RawKernel"] = _per_call(lambda: raw((4,), (256,), arguments), 50)
    held = (np.array([y.data.ptr, x.data.ptr, 1024], np.int64))
    pointers = np.array([held.ctypes.data + 8 * n for n in range(3)], np.int64)
    handle, at = raw.kernel.ptr, int(pointers.ctypes.data)
    out["bare cuLaunchKernel"] = _per_call(lambda: api.launchKernel(handle, 4, 1, 1, 256, 1, 1, 0, 0, at, 0), 50)
    graph_of = cupy.cuda.Stream(non_blocking=True)
    with graph_of:
        graph_of.begin_capture()
        for _ in range(10):
            raw((4,), (256,), arguments)
        captured = graph_of.end_capture()
        out["bare replay of 10 kernels"] = _per_call(captured.launch, 20)
    calls: dict[int, dict[str, float]] = {}
    for kernels in (1, 10, 100):
        row = calls[kernels] = {}
        for mode, graphs in (("launches", "off"), ("replay", "16")):
            os.environ["PIPELINK_GRAPHS"] = graphs
            p = pl.compile(chain(kernels), target="cuda")
            p.executable.graphs.least = 1
            for _ in range(6):
                result = p(x=x).y
            assert float(result[0]) == kernels + 1
            row[mode] = _per_call(lambda p=p: p(x=x), max(1, 400 // kernels if mode == "launches" else 20))
            keep(host_us=out, calls_us=calls)
    out["one launch within a run"] = (calls[100]["launches"] - calls[10]["launches"]) / 90
    ratio = out["one launch within a run"] / out["bare cuLaunchKernel"]
    keep(host_us=out, calls_us=calls, ratio_to_bare_launch=ratio,
         summary=f"10 kernels {calls[10]['launches']:.1f} us by launches, {calls[10]['replay']:.1f} us by replay; a launch is {ratio:.2f} of a bare one")
    _profile(x)
    if ratio > 1.2:
        fail(f"a launch costs {ratio:.2f} of a bare one")
    if calls[10]["replay"] > 10:
        fail("a replay costs more than 10 us")


def _profile(x: Any) -> None:
    """Where the host's time goes, for a reader."""
    import cProfile
    import io
    import pstats

    import pipelink_ir as pl
    from tests.gpu.programs import chain
    p = pl.compile(chain(10), target="cuda")
    for _ in range(10):
        p(x=x)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(300):
        p(x=x)
    profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(14)
    keep(profile=text.getvalue()[-2500:])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak() -> None:
    """Right results and flat memory over many calls."""
    import numpy as np
    cupy = importlib.import_module("cupy")

    import pipelink_ir as pl
    from tests.gpu.programs import diamonds, of_diamonds
    p = pl.compile(diamonds(3), target="cuda")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    wrong: list[str] = []
    done = [0] * 4
    device: list[int] = []
    host: list[int] = []

    def work(k: int, calls: int) -> None:
        with streams[k % 2]:
            for n in range(calls):
                size, value = (100, 5000, 333, 70_000)[(n + k) % 4], (7 * n + k) % 50
                if n % 3:
                    got = p(x=cupy.full(size, value, cupy.float32)).y
                    first, last = float(got[0]), float(got[-1])
                else:
                    host_result = p(x=np.full(size, value, np.float32)).y
                    first, last = float(host_result[0]), float(host_result[-1])
                if not first == last == of_diamonds(3, value):
                    wrong.append(f"thread {k}, call {n}: {first}, {last}")
                done[k] += 1

    for part in range(10):
        threads = [threading.Thread(target=work, args=(k, 250)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        cupy.cuda.runtime.deviceSynchronize()
        device.append(int(cupy.cuda.runtime.memGetInfo()[0]))
        host.append(_resident())
        keep(calls=sum(done), wrong=wrong[:20], device_free=device, host_resident=host, summary=f"{sum(done)} calls, {len(wrong)} wrong")
        print(part, sum(done), device[-1], host[-1], flush=True)
    grown, host_grown = device[2] - device[-1], host[-1] - host[2]
    keep(summary=f"{sum(done)} calls, {len(wrong)} wrong; device memory grew by {grown} bytes, the host's by {host_grown}, after the first quarter")
    if wrong or sum(done) != 10_000:
        fail("wrong results, or calls that did not end")
    if grown > 4 << 20 or host_grown > 64 << 20:
        fail("memory grows")


def bench() -> None:
    """The rows of the table."""
    from gpu import choice, measure
    measure.run(keep, choice.select(ROWS), PEERS, AHEAD)


def blurs() -> None:
    """Bytes by the model of `fuse` beside those that the hardware counts."""
    from gpu.blurs import compare
    compare(keep)


def limits() -> None:
    """What the rows that are named wait for; a few of them without names."""
    from gpu import choice
    from gpu.limits import find
    find(keep, choice.select(ROWS or ("sobel+gamma", "resize")))


def precision() -> None:
    """The programs of `examples/precision` in f16 and as their policies for this device leave them, and products of bytes beside those of f16."""
    from gpu.precision import compare
    compare(keep)


# ----------------------------------------------------------------------------------------------------------------------- sanitizer


def _sanitizer() -> str:
    found = shutil.which("compute-sanitizer")
    places = [found] if found else sorted(map(str, Path("/").glob("usr/local/cuda*/bin/compute-sanitizer")))
    places += sorted(map(str, Path("/").glob("opt/nvidia/**/compute-sanitizer")))[:1] if not places else []
    if not places:
        fail("there is no compute-sanitizer on this machine")
    return str(places[0])


def sanitized() -> None:
    """What runs under compute-sanitizer: every case by launches, a capture and a replay, with arrays of the host and of the device."""
    import numpy as np
    cupy = importlib.import_module("cupy")

    import pipelink_ir as pl
    from tests.gpu.programs import GATHER, SUM
    # Each array an allocation of its own, so that what lies behind it is nobody's.
    cupy.cuda.set_allocator(None)
    for path in sorted(CASES.glob("*.plir")):
        with np.load(path.with_suffix(".npz")) as data:
            inputs = {k[3:]: data[k] for k in data.files if k.startswith("in.")}
        p = pl.compile(path, target="cuda")
        for _ in range(3):
            p(**inputs)
        on_device = {k: cupy.asarray(v) for k, v in inputs.items()}
        p(**on_device)
        print(path.stem, flush=True)
    p = pl.compile(SUM, target="cuda")
    for n in (1, 31, 257, 0, 100_000):
        p(x=np.ones(n, np.float32), z=np.ones(n, np.float32))
    q = pl.compile(GATHER, target="cuda")
    try:
        q(x=np.ones(4, np.float32), i=np.array([9], np.int32))
    except pl.ExecutionError:
        pass
    cupy.cuda.runtime.deviceSynchronize()


def _checked(tool: str, more: Sequence[str] = ()) -> None:
    command = [_sanitizer(), "--tool", tool, "--print-limit", "30", *more, sys.executable, str(ROOT / "benchmarks" / "gpu_check.py"), "--run", "sanitized"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    text = done.stdout + done.stderr
    print(text[-5500:], flush=True)
    summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", text)
    finished = len([p for p in CASES.glob("*.plir") if re.search(rf"^{p.stem}$", text, re.M)])
    keep(summaries=summary, cases=finished, findings=[line for line in text.splitlines() if line.startswith("=========")][:120],
         summary=f"{finished} cases, {summary[-1] if summary else 'no summary'}")
    clean = bool(summary) and all(re.search(r"SUMMARY: 0 (?:errors|hazards)", s) for s in summary)
    if not clean or finished != len(list(CASES.glob("*.plir"))):
        fail("findings, or a case that did not end")


def memcheck() -> None:
    _checked("memcheck")


def racecheck() -> None:
    _checked("racecheck")


def synccheck() -> None:
    _checked("synccheck")


def initcheck() -> None:
    _checked("initcheck")
