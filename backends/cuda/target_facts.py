"""What differs between the languages of GPUs: a table for each. The emitter and the prelude spell what stands here and know nothing else of a target."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """One language. `macros` are what the prelude asks of a target, by name with parameters; the rest is spelled by the emitter."""

    name: str
    extension: str
    head: tuple[str, ...]
    """Lines before the prelude."""
    macros: Mapping[str, str]
    kernel: str
    """What makes a function a kernel; `{threads}` is the largest number of threads of a block."""
    restrict: str
    shared: str
    barrier: str
    lanes: int
    """Threads that run together and can exchange registers."""
    max_threads: int
    static_shared: int
    """Bytes of shared memory that a kernel may declare; more is asked for at the launch."""
    parameter_bytes: int
    """Bytes of parameters that a kernel may have."""
    bounds_blocks: bool = False
    """Whether behind the number of threads may stand how many blocks a multiprocessor should hold."""
    vectors: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """The type that loads several neighbours at once, by element and number."""

    def define(self) -> str:
        """The macros as text."""
        macros = [f"#ifndef {k.split('(')[0]}\n#define {k} {v}\n#endif" for k, v in self.macros.items()]
        return "\n".join([f"// The target: {self.name}", *self.head, *macros, ""])


_VECTORS = MappingProxyType({(t, n): f"{c}{n}" for t, c in (("f32", "float"), ("i32", "int"), ("u8", "uchar"), ("u16", "ushort"), ("f64", "double"),
                                                            ("i64", "longlong")) for n in (2, 4)})

CUDA = TargetFacts(
    name="CUDA", extension="cu", head=(),
    macros=MappingProxyType({
        "PL_LANES": "32",
        "PL_SHUFFLE(value, lane)": "__shfl_sync(0xffffffffu, value, lane)",
        "PL_SHUFFLE_DOWN(value, lanes)": "__shfl_down_sync(0xffffffffu, value, lanes)",
        "PL_DYN_SHARED(T, name)": "extern __shared__ __align__(16) T name[]",
    }),
    kernel='extern "C" __global__ void __launch_bounds__({threads})', restrict="__restrict__", shared="__shared__", barrier="__syncthreads();",
    lanes=32, max_threads=1024, static_shared=48 << 10, parameter_bytes=4096, bounds_blocks=True, vectors=_VECTORS)

HIP = TargetFacts(
    name="HIP", extension="hip", head=("#include <hip/hip_runtime.h>",),
    macros=MappingProxyType({
        "PL_LANES": "32",
        "PL_SHUFFLE(value, lane)": "__shfl(value, lane, 32)",
        "PL_SHUFFLE_DOWN(value, lanes)": "__shfl_down(value, lanes, 32)",
        "PL_DYN_SHARED(T, name)": "HIP_DYNAMIC_SHARED(T, name)",
    }),
    kernel='extern "C" __global__ void __launch_bounds__({threads})', restrict="__restrict__", shared="__shared__", barrier="__syncthreads();",
    lanes=32, max_threads=1024, static_shared=48 << 10, parameter_bytes=4096, vectors=_VECTORS)

TARGETS = MappingProxyType({"cuda": CUDA, "hip": HIP})
"""By the word of `--emit`."""
