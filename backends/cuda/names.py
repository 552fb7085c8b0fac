"""Names of emitted code: like those of the program, valid in C++, and no two things alike.

A `Names` hands out names in the order in which it is asked; each thing gets one that nothing else in the same scope has. The mapping is injective, whatever
the names are, and depends on nothing but them and their order.
"""
from __future__ import annotations

import re

_CPP = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class compl concept const consteval constexpr
constinit const_cast continue co_await co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union unsigned using
virtual void volatile wchar_t while xor xor_eq final override import module restrict typeof"""

_DEVICE = """threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 asm half half2 nv_bfloat16 printf assert malloc free memcpy memset main NULL EOF
stdin stdout stderr errno signbit isnan isinf isfinite clock clock64 surfaceReference textureReference linux unix i386 INFINITY NAN HUGE_VAL I major minor
BUFSIZ INT_MAX INT_MIN LONG_MAX LONG_MIN UINT_MAX RAND_MAX CHAR_BIT FLT_MAX FLT_MIN DBL_MAX DBL_MIN SIZE_MAX"""

_OURS = "pl pipelink u8 i8 u16 i16 i64 index_t f16 bf16 f8e4m3 f8e5m2 status scratch block_bytes thread_bytes shared_memory buffers"

RESERVED = frozenset(f"{_CPP} {_DEVICE} {_OURS}".split())
"""Words that a name may not be: of C++, of CUDA, and those that the emitter uses itself."""

_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long|u?longlong|float|double)[1-4]")

_MACRO = re.compile(r"(PL|PIPELINK)_.*")

_LIBRARY = frozenset("""abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv erfcx erfinv exp exp10 exp2 expm1
fabs fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround max min modf nan nearbyint
nextafter norm norm3d norm4d normcdf normcdfinv pow rcbrt remainder remquo rhypot rint rnorm rnorm3d rnorm4d round rsqrt scalbln scalbn sin sincos sincospi
sinh sinpi sqrt tan tanh tgamma trunc y0 y1 yn abort exit atexit getenv system rand srand time index rindex strlen strcmp strcpy puts putchar getchar read
write open close link pipe kill wait send""".split())
"""Functions that the global name space has or may have: no kernel may be called so, a local name may."""


def readable(text: str) -> str:
    """The nearest thing to `text` that can be a name: other characters than letters, digits and `_` become `_`, those beyond ASCII their code."""
    out = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" if c.isascii() else f"u{ord(c):x}" for c in text)
    # Two underlines, and one at the head, belong to the compiler.
    out = re.sub("__+", "_", out)
    out = out.strip("_") or "v"
    return f"v{out}" if out[0].isdigit() or _MACRO.fullmatch(out) else out


class Names:
    """The names of one scope; those of `outer` scopes are not hidden."""

    def __init__(self, reserved: frozenset[str] = frozenset(), outer: Names | None = None) -> None:
        self._taken: set[str] = set(RESERVED | reserved)
        if outer is not None:
            self._taken |= outer._taken
        self._next: dict[str, int] = {}

    def new(self, text: str) -> str:
        """A name like `text` that nothing has yet."""
        stem = readable(text)
        if self._free(stem):
            return self._take(stem)
        n = self._next.get(stem, 2)
        while not self._free(f"{stem}_{n}"):
            n += 1
        self._next[stem] = n + 1
        return self._take(f"{stem}_{n}")

    def _free(self, name: str) -> bool:
        return name not in self._taken and not _VECTOR.fullmatch(name) and not _MACRO.fullmatch(name)

    def _take(self, name: str) -> str:
        self._taken.add(name)
        return name


def kernel_names() -> Names:
    """The scope of the kernels of one text: they are global."""
    return Names(_LIBRARY | {f"{n}f" for n in _LIBRARY})
