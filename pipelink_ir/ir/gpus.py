"""What each architecture of a GPU has: one device for each, with the figures of its maker.

Rates are dense (without structured sparsity), at the boost clock, in operations a second, a multiplication and an addition counting two. `tensor` has the rates
of tensor cores by the dtype of the factors; sums are f32, of bytes i32. A dtype that is missing has no tensor cores there.

Sources, all by NVIDIA:
  sm_75   T4: "NVIDIA T4" datasheet; "Turing GPU Architecture" whitepaper (TU104: 64 KiB of shared memory a processor)
  sm_80   A100 80 GB SXM: "NVIDIA A100 Tensor Core GPU Architecture" whitepaper, datasheet of 2021 (2,039 GB/s)
  sm_86   A10: "NVIDIA A10" datasheet; "Ampere GA102 GPU Architecture" whitepaper
  sm_87   Jetson AGX Orin 64 GB: "Jetson AGX Orin Series" technical brief v1.2 (170 sparse TOPS of i8 on the GPU are 85 dense). CPU and GPU share one memory
  sm_89   L4: "NVIDIA L4" datasheet (halved, it gives sparse rates); "Ada GPU Architecture" whitepaper. An RTX 4090 has 1,008 GB/s and about 2.7 times the rates
  sm_90   H200 SXM: "NVIDIA H200" datasheet (halved likewise); "H100 Tensor Core GPU Architecture" whitepaper
  sm_100  B200: "NVIDIA DGX B200" datasheet, an eighth of it; "Blackwell Architecture Technical Brief"
  sm_120  RTX 5090: "RTX Blackwell GPU Architecture" whitepaper
Shared memory, registers and threads: "CUDA C++ Programming Guide", technical specifications by compute capability. Dtypes and shapes of tensor cores: PTX ISA,
`mma`.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pipelink_ir.ir.targets import Arch

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One architecture, by a device that has it."""

    sm: int
    device: str
    bandwidth: float
    """Bytes a second, to and from memory."""
    f32: float
    """Operations of f32 a second, without tensor cores."""
    tensor: Mapping[str, float]
    """Operations a second on tensor cores, by dtype of the factors; `tf32` is f32 that is rounded."""
    shared_block: int
    """Bytes of shared memory that a block may have when it asks for it."""
    shared_processor: int
    registers: int
    """Registers of a processor, of 32 bits."""
    threads: int
    """Threads that a processor holds."""
    processors: int
    l2: int
    """Bytes of the cache between processors and memory."""
    unified: bool = False
    """Whether the host's memory is the device's: then nothing is transferred."""

    def rate(self, dtype: str) -> float | None:
        """Operations a second on tensor cores for factors of a dtype; None where it has none."""
        return self.tensor.get(dtype)

    def shape(self, dtype: str) -> str | None:
        """The largest `mma.sync` for factors of a dtype: rows, columns and terms of what a warp multiplies at a time; None where there is none."""
        return (_FIRST if self.sm < 80 else _SHAPES).get(dtype) if dtype in self.tensor else None


_FIRST: Mapping[str, str] = MappingProxyType({"f16": "m16n8k8", "i8": "m8n8k16", "u8": "m8n8k16"})
"""Before sm_80."""

_SHAPES: Mapping[str, str] = MappingProxyType({"f16": "m16n8k16", "bf16": "m16n8k16", "tf32": "m16n8k8", "i8": "m16n8k32", "u8": "m16n8k32",
                                               "f8e4m3": "m16n8k32", "f8e5m2": "m16n8k32"})


def _tensor(f16: float, i8: float, bf16: bool = True, f8: bool = False) -> Mapping[str, float]:
    """Rates by dtype: bf16 as f16, tf32 half of it, f8 as bytes."""
    out = {"f16": f16, "i8": i8, "u8": i8}
    if bf16:
        out |= {"bf16": f16, "tf32": f16 / 2}
    if f8:
        out |= {"f8e4m3": 2 * f16, "f8e5m2": 2 * f16}
    return MappingProxyType(out)


_ALL = (
    GpuFacts(75, "T4", 320e9, 8.1e12, _tensor(65e12, 130e12, bf16=False), 64 * KIB, 64 * KIB, 65536, 1024, 40, 4 * MIB),
    GpuFacts(80, "A100", 2039e9, 19.5e12, _tensor(312e12, 624e12), 163 * KIB, 164 * KIB, 65536, 2048, 108, 40 * MIB),
    GpuFacts(86, "A10", 600e9, 31.2e12, _tensor(125e12, 250e12), 99 * KIB, 100 * KIB, 65536, 1536, 72, 6 * MIB),
    GpuFacts(87, "Jetson AGX Orin", 204.8e9, 5.3e12, _tensor(42.5e12, 85e12), 163 * KIB, 164 * KIB, 65536, 1536, 16, 4 * MIB, unified=True),
    GpuFacts(89, "L4", 300e9, 30.3e12, _tensor(121e12, 242e12, f8=True), 99 * KIB, 100 * KIB, 65536, 1536, 58, 48 * MIB),
    GpuFacts(90, "H200", 4.8e12, 67e12, _tensor(989e12, 1979e12, f8=True), 227 * KIB, 228 * KIB, 65536, 2048, 132, 50 * MIB),
    GpuFacts(100, "B200", 8e12, 75e12, _tensor(2250e12, 4500e12, f8=True), 227 * KIB, 228 * KIB, 65536, 2048, 148, 126 * MIB),
    GpuFacts(120, "RTX 5090", 1792e9, 104.8e12, _tensor(209.5e12, 838e12, f8=True), 99 * KIB, 100 * KIB, 65536, 1536, 170, 96 * MIB),
)

GPUS: Mapping[int, GpuFacts] = MappingProxyType({g.sm: g for g in _ALL})
"""By compute capability, 75 for 7.5."""


def facts_of(arch: Arch) -> GpuFacts | None:
    """The facts of an architecture; those of the newest one below where it has none of its own, since it has at least what that one has. None for what is no
    GPU, or older than all of them."""
    below = [sm for sm in GPUS if sm <= arch.sm] if arch.kind == "cuda" else []
    return GPUS[max(below)] if below else None
