"""The language on one screen: every node of the IR.

All nodes are frozen, hold tuples, and carry the span they come from. Spans and inferred types take no part in comparison, so that a
program equals what its printed text parses to. A pass returns a new `Module`; what it did not touch is the same object.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Union

from pipelink_ir.ir.dtypes import DType
from pipelink_ir.ir.source import NOWHERE, Span

# ---------------------------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Expr:
    """A scalar expression. `dtype` is None until types are inferred: afterwards the dtype of the value."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    dtype: DType | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class IntLit(Expr):
    """An integer as written; a minus before a literal belongs to it."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatLit(Expr):
    """A float as written. Compared by its bits, so that -0.0 is not 0.0."""

    value: float = field(compare=False)
    bits: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", self.value.hex())


@dataclass(frozen=True, slots=True)
class Const(Expr):
    """`inf`, `nan`, `pi`, `true` or `false`."""

    name: str


@dataclass(frozen=True, slots=True)
class Name(Expr):
    """A bare name: an index, a dimension, a scalar attribute, a `let`, or a word where words are admitted."""

    name: str


@dataclass(frozen=True, slots=True)
class Dots(Expr):
    """`...` in a shape, an index list or a reduction."""


@dataclass(frozen=True, slots=True)
class Dynamic(Expr):
    """`?` in a shape: a dimension that is not named and equal to nothing."""


@dataclass(frozen=True, slots=True)
class Read(Expr):
    """An element of an operand, a result or a local: `%x[h, w - 1]`; a tensor of rank 0 is read as `%x`.

    `access` is written by inference, one word an axis: `inside` (proven for every evaluation), `guarded` (proven where the guards around
    it hold), `border` (the border answers outside), `check` (checked at run time)."""

    tensor: str
    indices: tuple[Expr, ...] = ()
    access: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply(Expr):
    """A function of `ir/functions.py` by its name there; operators are spelled `+`, `neg`, `and`, … `exact`: it belongs to a definition that asks for correct
    rounding, in an operator that does not; inference says so."""

    fn: str
    args: tuple[Expr, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Cast(Expr):
    """`f16(x)`, `T(x)`, `sat_u8(x)`. `implicit` casts are put in by inference and not printed."""

    to: str
    arg: Expr
    saturate: bool = False
    implicit: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Range(Expr):
    """An index and what it runs over: `k < K` (no `lo`), `j in a..b` (half open)."""

    index: str
    lo: Expr | None
    hi: Expr


@dataclass(frozen=True, slots=True)
class Reduce(Expr):
    """`sum[d < D where COND](body)`; `rank` only for `nth` and `argnth`. Ranges are `Range`, or `Dots` before inference."""

    kind: str
    ranges: tuple[Expr, ...]
    where: Expr | None
    body: Expr
    rank: Expr | None = None


# ---------------------------------------------------------------------------------------------------------- types and contracts


@dataclass(frozen=True, slots=True)
class TensorType:
    """`tensor<NxHx(W + 1)xf32, NHW>`. `dims` are integer expressions, `Dots` or `Dynamic`; `dtype` is a dtype's name or a variable's."""

    dims: tuple[Expr, ...]
    dtype: str
    layout: str | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Text:
    """A string value, `"sobel_kernel"`."""

    value: str
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Items:
    """A list value, `[f16, bf16]`."""

    items: tuple[Value, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


Value = Union[Expr, Text, Items]
"""The right side of a setting: an expression (a word is a `Name`, `constant(0)` an `Apply`, `%x` a `Read`), a string, a list."""


@dataclass(frozen=True, slots=True)
class Setting:
    """`key = value`; `span` covers both, `key_span` the key."""

    key: str
    value: Value
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    key_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Scoped:
    """`%x { key = value, … }` inside a section: settings of one value."""

    tensor: str
    settings: tuple[Setting, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Section:
    """`memory { … }`, `execution`, `semantic`, `compile`, `schedule`, `plan`. Typed views are in `ir/contracts.py`."""

    name: str
    entries: tuple[Setting | Scoped, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Downgrade:
    """`downgrade sm_75 { … }`, or `downgrade sm_75 unsupported` (settings None)."""

    target: str
    settings: tuple[Setting, ...] | None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


# ------------------------------------------------------------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True)
class Operand:
    """`%x: tensor<…>` of an operator, or an input of a pipeline (`param` marks what is bound once)."""

    name: str
    type: TensorType
    param: bool = False
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Attribute:
    """`gamma: f32 = 2.2`, `OH: dim`, `mode: word in [a, b] = a`, `U: dtype`. `type` is a dtype's name, `dim`, `word` or `dtype`."""

    name: str
    type: str
    words: tuple[str, ...] = ()
    default: Expr | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Position:
    """An integer on the left side of a definition."""

    value: int
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Axis:
    """A name on the left side: `h`, `s < 2*L+1` (`hi` only), `c in 0..A` (both)."""

    index: str
    lo: Expr | None = None
    hi: Expr | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Define:
    """`%a[t < T, s] = …`: one piece of a result or of a local. An axis may be `Dots` before inference."""

    tensor: str
    axes: tuple[Axis | Position | Dots, ...]
    value: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    target: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    """The left side alone."""


@dataclass(frozen=True, slots=True)
class Let:
    """`let scale = 1 / sqrt(f32(D))`."""

    name: str
    value: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Compute:
    """`compute { … }`, and `gradient { … }`."""

    body: tuple[Let | Define, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Graph:
    """`graph { … }`: the nodes of an operator made of operators."""

    nodes: tuple[Node | Alias, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Kernel:
    """`kernel cuda "file.cu" { entry = …, block = …, grid = …, shared = … }`."""

    language: str
    file: str
    settings: tuple[Setting, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Operator:
    """`op @name(…) -> (…) { … }`. `name` has no `@`; of an imported operator it is the full name, `std.image.sobel`."""

    name: str
    params: tuple[Operand | Attribute, ...]
    results: tuple[Operand, ...]
    doc: str | None = None
    where: tuple[Expr, ...] = ()
    sections: tuple[Section, ...] = ()
    """memory, execution, semantic, compile, schedule, in the order written; a section may be written twice."""
    downgrades: tuple[Downgrade, ...] = ()
    compute: Compute | None = None
    graph: Graph | None = None
    kernel: Kernel | None = None
    gradient: Compute | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    signature: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    """From `op` to the end of the results: where messages point for "declared here"."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        return tuple(p for p in self.params if isinstance(p, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(p for p in self.params if isinstance(p, Attribute))


# ------------------------------------------------------------------------------------------------------------------- pipelines


@dataclass(frozen=True, slots=True)
class Edge:
    """`%x` as an argument."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Pack:
    """`[%a, %b]` (stacked along a new first dimension) or `[%a, %b] along C` (joined along the operand's dimension of that name)."""

    items: tuple[Edge, ...]
    along: str | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Device:
    """`cpu`, `cuda:N` or `@t4` (kind `target`, name `t4`)."""

    kind: str
    index: int = 0
    name: str | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Node:
    """`%a, %b = @op(%x, [%y, %z]) {k = v} on cuda:1 as label after %c plan { … }`.

    `types` are the results' types in the symbols of the pipeline, written by inference and not printed."""

    results: tuple[Edge, ...]
    op: str
    args: tuple[Edge | Pack, ...]
    attrs: tuple[Setting, ...] = ()
    device: Device | None = None
    label: str | None = None
    after: tuple[Edge, ...] = ()
    plan: Section | None = None
    reason: str | None = None
    """What passes say of this node, for the ledger: why one put it in, what became part of it, what was not done and why. None if nothing was."""
    loc: Span | None = field(default=None, compare=False, repr=False)
    """Where the node came from, if not from this text: printed as `loc("file.plir":12:3)`."""
    types: tuple[TensorType, ...] = field(default=(), compare=False, repr=False)
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    op_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    label_span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Alias:
    """`%b = %a`: a second name of an edge."""

    name: Edge
    of: Edge
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`pipeline @name(%img: …, param %w: …, gamma: f32 = 2.2) -> (…) on DEVICE { where … nodes }`."""

    name: str
    params: tuple[Operand | Attribute, ...]
    results: tuple[Operand, ...]
    nodes: tuple[Node | Alias, ...]
    doc: str | None = None
    where: tuple[Expr, ...] = ()
    device: Device | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    signature: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return tuple(p for p in self.params if isinstance(p, Operand))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(p for p in self.params if isinstance(p, Attribute))


@dataclass(frozen=True, slots=True)
class Import:
    """`import std.image` (module) or `import "ops/mine.plir"` (file)."""

    module: str | None = None
    file: str | None = None
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Target:
    """`target @t4 { arch = sm_75 }`."""

    name: str
    settings: tuple[Setting, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Module:
    """A whole program. `items` keeps the order of the text."""

    items: tuple[Import | Target | Operator | Pipeline, ...]
    path: str = field(default="<generated>", compare=False)

    @property
    def imports(self) -> tuple[Import, ...]:
        return tuple(i for i in self.items if isinstance(i, Import))

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(i for i in self.items if isinstance(i, Target))

    @property
    def operators(self) -> tuple[Operator, ...]:
        return tuple(i for i in self.items if isinstance(i, Operator))

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return tuple(i for i in self.items if isinstance(i, Pipeline))
