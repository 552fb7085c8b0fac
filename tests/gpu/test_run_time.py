"""The run time on a GPU: arrays of every library, streams, graphs, memory, faults, threads, processes that fork."""
from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipelink_ir as pl
from tests.cases.stored import HERE, PROGRAMS, stored
from tests.gpu.programs import GATHER, SUM, diamonds, of_diamonds

pytestmark = pytest.mark.gpu
SPIN = r"""extern "C" __global__ void spin(long long cycles) { const long long begin = clock64(); while (clock64() - begin < cycles) {} }"""


@pytest.fixture(scope="module")
def cupy() -> Any:
    return importlib.import_module("cupy")


@pytest.fixture(scope="module")
def spin(cupy: Any) -> Any:
    """Keeps a stream busy for so many milliseconds."""
    kernel = cupy.RawKernel(SPIN, "spin")
    return lambda ms: kernel((1,), (1,), (np.int64(ms * 1_700_000),))


def replays(p: pl.Compiled) -> int:
    return int(p.executable.graphs.captured)  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_cases(cupy: Any, name: str, where: str) -> None:
    case = stored(name)
    p = pl.compile(HERE / f"{name}.plir", target="cuda")
    for call in range(3):  # launches, a capture, a replay
        given = case.inputs if where == "host" else {k: cupy.asarray(v) for k, v in case.inputs.items()}
        got = {k: v if where == "host" else cupy.asnumpy(v) for k, v in p(**given).items()}
        assert not case.wrong(got), call


def test_numpy_in_numpy_out_cupy_in_cupy_out(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda:0")
    x, z = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    host, device, both = p(x=x, z=z).y, p(x=cupy.asarray(x), z=cupy.asarray(z)).y, p(x=x, z=cupy.asarray(z)).y
    assert type(host) is np.ndarray
    assert type(device) is type(both) is cupy.ndarray
    for y in (host, device, both):
        np.testing.assert_array_equal(cupy.asnumpy(y), x + 3)


@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"])
def test_every_dtype_comes_and_goes(cupy: Any, dtype: str) -> None:
    from pipelink_ir.ir.dtypes import DTYPES
    p = pl.compile(f"op @id(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ compute {{ %y[n] = %x[n] }} }}\n"
                   f"pipeline @p(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ %y = @id(%x) }}\n", target="cuda")
    x = np.array([0, 1, 1, 0, 1]).astype(DTYPES[dtype].numpy())
    for _ in range(2):
        np.testing.assert_array_equal(p(x=x).y.astype(np.float64), x.astype(np.float64))


@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_f8_on_the_device(cupy: Any, dtype: str) -> None:
    """CuPy has no such elements: views come out, which PyTorch takes, and which go in again."""
    torch = pytest.importorskip("torch")
    kind = {"f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}[dtype]
    p = pl.compile(f"op @twice(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ compute {{ %y[n] = 2 * %x[n] }} }}\n"
                   f"pipeline @p(%x: tensor<Nx{dtype}>) -> (%y: tensor<Nx{dtype}>) {{ %y = @twice(%x) }}\n", target="cuda")
    x = torch.tensor([0, 1, -1.5, 64, 0.25], device="cuda").to(kind)
    for _ in range(4):
        y = p(x=x).y
        assert (str(y.dtype), y.device) == (dtype, "cuda:0")
        assert torch.equal(torch.from_dlpack(y).to(torch.float32), 2 * x.to(torch.float32))
    again = p(x=p(x=x).y).y
    assert torch.equal(torch.from_dlpack(again).to(torch.float32), 4 * x.to(torch.float32))
    out = torch.empty(5, device="cuda").to(kind)
    p(x=x, out=out)
    assert torch.equal(out.to(torch.float32), 2 * x.to(torch.float32))


def test_torch(cupy: Any) -> None:
    torch = pytest.importorskip("torch")
    p = pl.compile(SUM, target="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for k in range(4):
                x, z = torch.full((4096,), float(k), device="cuda"), torch.ones(4096, device="cuda")
                y = torch.from_dlpack(p(x=x, z=z).y)
                x.fill_(-99)  # in the order of the stream: the run has read it
                assert torch.equal(y, torch.full_like(y, k + 3))
    half = torch.ones(8, 8, device="cuda", dtype=torch.bfloat16)
    q = pl.compile("op @id(%x: tensor<NxMxbf16>) -> (%y: tensor<NxMxbf16>) { compute { %y[n, m] = %x[n, m] } }\n"
                   "pipeline @p(%x: tensor<NxMxbf16>) -> (%y: tensor<NxMxbf16>) { %y = @id(%x) }\n", target="cuda")
    assert torch.equal(torch.from_dlpack(q(x=half).y).view(torch.bfloat16), half)


def test_jax() -> None:
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("gpu")[0]
    except RuntimeError:
        pytest.skip("JAX sees no GPU here")
    p = pl.compile(SUM, target="cuda")
    x = jax.device_put(np.arange(100, dtype=np.float32), device)
    np.testing.assert_array_equal(p(x=x, z=np.ones(100, np.float32)).y.get(), np.arange(100) + 3)


class Interface:
    """The CUDA array interface alone."""

    def __init__(self, array: Any, stream: int | None) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, "stream": stream}


def test_strided_arrays_are_packed_or_refused(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    base = cupy.arange(64, dtype=cupy.float32)
    for x in (base[::2], base[::-1][:32], cupy.broadcast_to(base[3:4], (32,))):
        np.testing.assert_array_equal(p(x=x, z=cupy.ones(32, cupy.float32)).y.get(), x.get() + 3)


def test_out(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    x, z = cupy.arange(32, dtype=cupy.float32), cupy.ones(32, cupy.float32)
    for out in (cupy.zeros(32, cupy.float32), cupy.zeros(64, cupy.float32)[::2], np.zeros(32, np.float32)):
        assert p(x=x, z=z, out=out).y is out
        np.testing.assert_array_equal(cupy.asnumpy(out), x.get() + 3)
    with pytest.raises(pl.ContractViolationError, match="overlaps"):
        p(x=x, z=z, out=x)


# ----------------------------------------------------------------------------------------------------------------------- streams


def test_a_run_waits_for_the_stream_that_an_array_names(cupy: Any, spin: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    z = cupy.ones(1 << 16, cupy.float32)
    with cupy.cuda.Stream(non_blocking=True) as made:
        for _ in range(20):
            x = cupy.zeros(1 << 16, cupy.float32)
            made.synchronize()
            spin(20)
            x.fill(1)
            named = Interface(x, made.ptr)
            with cupy.cuda.Stream(non_blocking=True) as used:
                y = p(x=named, z=z).y
                used.synchronize()
                assert bool((y == 4).all())


def test_the_caller_s_stream_comes_after_the_run(cupy: Any, spin: Any) -> None:
    p = pl.compile(diamonds(6), target="cuda")
    for n in (1 << 10, 1 << 20):
        with cupy.cuda.Stream(non_blocking=True):
            for k in range(100):
                x = cupy.full(n, k, cupy.float32)
                y = p(x=x).y
                x.fill(-1e9)  # overwrites what the run reads
                twice = 2 * y
                del x, y
                assert float(twice[n // 2]) == 2 * of_diamonds(6, k)


def test_no_wait_when_everything_is_on_the_device(cupy: Any, spin: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    x, z = cupy.ones(1000, cupy.float32), cupy.ones(1000, cupy.float32)
    for _ in range(4):
        p(x=x, z=z)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        p(x=x, z=z)
        spin(100)
        y = p(x=x, z=z).y
        assert not stream.done  # handed over while the stream is still busy
        stream.synchronize()
    np.testing.assert_array_equal(y.get(), 4)


def test_asynchronous(cupy: Any) -> None:
    p = pl.compile(GATHER, target="cuda")
    x, good, bad = np.arange(9, dtype=np.float32), np.array([0, 8], np.int32), np.array([0, 9], np.int32)
    first, second = p(x=x, i=bad, asynchronous=True), p(x=x, i=good, asynchronous=True)
    np.testing.assert_array_equal(second.wait().y, [1, 9])
    with pytest.raises(pl.ExecutionError, match="index 9"):
        first.wait()
    for _ in range(50):
        p(x=x, i=good, asynchronous=True)  # nobody waits
    gc.collect()
    np.testing.assert_array_equal(p(x=x, i=good).y, [1, 9])


def test_an_index_outside(cupy: Any) -> None:
    p = pl.compile(GATHER, target="cuda")
    x = np.arange(9, dtype=np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(p(x=cupy.asarray(x), i=cupy.asarray([0, 8], dtype=cupy.int32)).y.get(), [1, 9])
        with pytest.raises(pl.ExecutionError, match="index -1") as caught:
            p(x=cupy.asarray(x), i=cupy.asarray([0, -1], dtype=cupy.int32))
        assert caught.value.diagnostics[0].code == "PL6101"


# ------------------------------------------------------------------------------------------------------------------------ graphs


def test_graphs_replay_and_follow_pointers(cupy: Any) -> None:
    p = pl.compile(diamonds(3), target="cuda")
    kept = []
    for k in range(40):
        x = cupy.full(5000, k % 7, cupy.float32)
        kept.append((k % 7, x, p(x=x).y))
    assert replays(p) == 1
    for k, _, y in kept:
        assert float(y.min()) == float(y.max()) == of_diamonds(3, k)


def test_the_same_memory_with_new_values_and_results_that_stay(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    x, z = cupy.zeros(100, cupy.float32), cupy.ones(100, cupy.float32)
    results = []
    for k in range(10):
        x.fill(k)
        results.append(p(x=x, z=z).y)
    for k, y in enumerate(results):
        np.testing.assert_array_equal(y.get(), k + 3)


def test_another_shape_moves_the_arena(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    for n in (100, 100, 100, 1 << 22, 100, 1 << 24, 1 << 22, 100, 1 << 24, 100):
        x = cupy.full(n, n % 1000, cupy.float32)
        y = p(x=x, z=x).y
        assert float(y[0]) == float(y[-1]) == 2 * (n % 1000) + 2


def test_captures_while_others_allocate_and_collect(cupy: Any) -> None:
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            pointer = cupy.cuda.runtime.malloc(1 << 20)
            cupy.cuda.runtime.free(pointer)
            gc.collect()

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for k in range(20):
            p = pl.compile(SUM, target="cuda")
            p.itself = p  # type: ignore[attr-defined]  # garbage in a cycle
            for _ in range(3):
                np.testing.assert_array_equal(p(x=np.full(64, k, np.float32), z=np.ones(64, np.float32)).y, k + 3)
    finally:
        stop.set()
        thread.join()


# ------------------------------------------------------------------------------------------------------------------------ memory


def test_out_of_memory_and_again(cupy: Any) -> None:
    p = pl.compile(SUM, target="cuda")
    x = np.ones(1000, np.float32)
    np.testing.assert_array_equal(p(x=x, z=x).y, 4)
    free, _ = cupy.cuda.runtime.memGetInfo()
    held = cupy.cuda.runtime.malloc(free - (600 << 20))
    try:
        big = np.ones(100 << 20, np.float32)
        for _ in range(2):
            with pytest.raises(pl.ExecutionError) as caught:
                p(x=big, z=big)
            assert caught.value.diagnostics[0].code == "PL6201"
            np.testing.assert_array_equal(p(x=x, z=x).y, 4)
        if (torch := sys.modules.get("torch")) is not None:
            assert float(torch.ones(3, device="cuda").sum()) == 3  # no error is left behind
        assert float(cupy.ones(3).sum()) == 3
    finally:
        cupy.cuda.runtime.free(held)
    assert float(p(x=big, z=big).y[-1]) == 4


def leaks(rounds: list[int], slack: int = 0) -> bool:
    """Whether each round left less memory of the device free than the one before, by more than ``slack`` bytes.

    What one round does not give back is missing after each; what another process takes meanwhile is not.
    """
    return all(after < before - slack for before, after in pairwise(rounds))


def test_nothing_is_allocated_after_the_first_calls(cupy: Any) -> None:
    p = pl.compile(diamonds(4), target="cuda")
    arrays = [cupy.ones(n, cupy.float32) for n in (100, 10_000, 1_000_000)]

    def free(calls: int) -> int:
        for _ in range(calls):
            for x in arrays:
                p(x=x)
        cupy.cuda.runtime.deviceSynchronize()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    first = free(4)
    pool = cupy.get_default_memory_pool().total_bytes()
    rounds = [first] + [free(50) for _ in range(6)]
    assert cupy.get_default_memory_pool().total_bytes() == pool
    assert not leaks(rounds), rounds


def test_everything_is_given_back(cupy: Any) -> None:
    def free() -> int:
        p = pl.compile(SUM, target="cuda")
        for n in (10, 1 << 22):
            for _ in range(3):
                p(x=np.ones(n, np.float32), z=np.ones(n, np.float32))
        del p
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.runtime.deviceSynchronize()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    rounds = [free() for _ in range(7)][2:]
    assert not leaks(rounds, slack=4 << 20), rounds


def test_threads_and_streams(cupy: Any) -> None:
    """Four threads, two streams, alternating sizes and memory."""
    p = pl.compile(diamonds(3), target="cuda")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    wrong: list[Any] = []

    def work(k: int) -> None:
        try:
            with streams[k % 2]:
                for n in range(250):
                    size = (100, 5000, 333)[(n + k) % 3]
                    value = (7 * n + k) % 50
                    if n % 2:
                        y = p(x=cupy.full(size, value, cupy.float32)).y
                        streams[k % 2].synchronize()
                        got = y.get()
                    else:
                        got = p(x=np.full(size, value, np.float32)).y
                    if got.shape != (size,) or not (got == of_diamonds(3, value)).all():
                        wrong.append((k, n, got[:3]))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not wrong


# --------------------------------------------------------------------------------------------------------------- devices, processes


def test_a_device_that_is_not_there(cupy: Any) -> None:
    with pytest.raises(pl.UsageError, match="no device 'cuda:99'"):
        pl.compile(SUM, target="cuda:99")


def test_the_current_device_of_the_caller_stays(cupy: Any) -> None:
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    p = pl.compile(SUM, target="cuda:1")
    x = np.ones(100, np.float32)
    with cupy.cuda.Device(0):
        for _ in range(3):
            np.testing.assert_array_equal(p(x=x, z=x).y, 4)
            assert cupy.cuda.runtime.getDevice() == 0
        with pytest.raises(pl.ContractViolationError, match="cuda:0"):
            p(x=cupy.asarray(x), z=x)
    with cupy.cuda.Device(1):
        on_one = cupy.asarray(x)
    y = p(x=on_one, z=x).y
    assert y.device.id == 1
    assert cupy.cuda.runtime.getDevice() == 0


def _python(code: str, **env: str) -> Any:
    import os
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **env}, check=False,
                          cwd=Path(__file__).resolve().parents[2])


def test_a_forked_child(cupy: Any) -> None:
    code = f"""
import os, numpy as np, pipelink_ir as pl
program = {SUM!r}
x = np.ones(9, np.float32)
p = pl.compile(program, target="cuda")
p(x=x, z=x)
child = os.fork()
if child == 0:
    said = []
    for action in (lambda: p(x=x, z=x), lambda: pl.compile(program, target="cuda")):
        try:
            action()
        except pl.UsageError as error:
            said.append("forked" in str(error))
    print(said, float(pl.compile(program, target="cpu")(x=x, z=x).y[0]), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), float(p(x=x, z=x).y[0]))
"""
    done = _python(code)
    assert done.stdout.split("\n")[:2] == ["[True, True] 4.0", "0 4.0"], done.stderr


def test_hidden_devices(cupy: Any) -> None:
    code = f"import pipelink_ir as pl\ntry: pl.compile({SUM!r}, target='cuda')\nexcept pl.UsageError as error: print(error)"
    assert "CUDA_VISIBLE_DEVICES=''" in _python(code, CUDA_VISIBLE_DEVICES="").stdout
    best = f"import pipelink_ir as pl; print(pl.compile({SUM!r}).target.name)"
    assert _python(best, CUDA_VISIBLE_DEVICES="").stdout.strip() == "cpu"
    assert _python(best).stdout.strip() == "cuda"


def test_nothing_is_started_by_an_import_or_a_check(cupy: Any) -> None:
    code = ("import sys, pipelink_ir as pl\nfrom pipelink_ir.cli.main import main\nmain(['check', 'examples'])\n"
            "from pipelink_ir.backends.cuda import opened\nprint('\\n', opened._driver, 'cupy' in sys.modules)")
    assert _python(code).stdout.splitlines()[-1].strip() == "None False"


def test_a_kernel_that_fails_takes_the_process_with_it_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text('extern "C" __global__ void bad(const pipelink::TensorView* x, pipelink::TensorView* y, const void*) {\n'
                                     "  *reinterpret_cast<volatile float*>(16) = 1;\n}\n")
    (tmp_path / "bad.plir").write_text('op @bad(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { kernel cuda "bad.cu" { entry = "bad" } }\n'
                                       "pipeline @p(%x: tensor<Nxf32>) -> (%y: tensor<Nxf32>) { %y = @bad(%x) }\n")
    code = (f"import numpy as np, pipelink_ir as pl\np = pl.compile({str(tmp_path / 'bad.plir')!r}, target='cuda')\nfor _ in range(2):\n"
            "    try: p(x=np.ones(4, np.float32))\n    except pl.ExecutionError as error: print(error.diagnostics[0].code, 'anew' in error.diagnostics[0].help)")
    done = _python(code)
    assert done.stdout.splitlines() == ["PL6202 True", "PL6202 True"], done.stderr
    assert "Traceback" not in done.stderr


def test_verify(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pipelink_ir.cli", "verify", str(HERE / "extern_sobel.plir")], capture_output=True, text=True, timeout=300,
                          check=False)
    assert (done.returncode, done.stdout.startswith("@sobel_user: agrees in 20 runs")) == (0, True), done.stderr
