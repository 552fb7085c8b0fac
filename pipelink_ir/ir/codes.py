"""The table of diagnostic codes: what `pipelinkc explain` and `docs/errors` say.

A code is PL and four digits: 1xxx text and names, 2xxx meaning, 3xxx contracts, 4xxx targets and policies, 5xxx plans and devices, 6xxx run time,
9xxx the tool itself. `field` is the key that tools filter by. The example programs stand in `ir/code_programs.py`.
"""
from __future__ import annotations

from dataclasses import dataclass

from pipelink_ir.ir.code_programs import PROGRAMS


@dataclass(frozen=True, slots=True)
class Code:
    """What one code means: a title, why it is an error, a wrong program and a right one."""

    field: str
    title: str
    why: str = ""
    wrong: str = ""
    right: str = ""


_TEXT: dict[str, tuple[str, str, str]] = {
    "PL1001": (
        "syntax", "the text does not parse",
        "The message points at the first token that cannot be right where it stands, and says what could. For a bracket that is never closed that "
        "is the token which cannot follow, with a note at the bracket. Reserved words (`and or not in mod floordiv ceildiv let where select param "
        "on as after plan schedule` and the dtypes) cannot name anything, and symbolic dimensions are upper case. Files are UTF-8.",
    ),
    "PL1101": (
        "name", "a name that nothing defines, or an input that nothing reads",
        "Operators (`@name`), tensors (`%name`), indices, dimensions and attributes are all defined somewhere in the text or in an import; a "
        "misspelled one is reported with the nearest names. An input that nothing reads is only a warning: the program compiles, but a wire is "
        "probably missing.",
    ),
    "PL1201": (
        "duplicate", "a second definition of one name",
        "A name has one meaning, so the second of two definitions is never silently the winner. That holds for operators, edges, labels, attributes "
        "and keys of a section. Pieces of one tensor may not overlap either; only a constant position wins over a range.",
    ),
    "PL1301": (
        "import", "a module that is missing or imports itself",
        "`import \"ops/mine.plir\"` is looked for beside the importing file and then on the search path of the project; `import std.image` names a "
        "module of the standard library. Files that import each other in a circle cannot be read in any order.",
    ),
    "PL2001": (
        "arity", "the number of operands or results",
        "A call names as many tensors as the operator's signature has operands, in their order, and as many results. Several tensors for one "
        "operand are written as a list, `[%a, %b]` (stacked) or `[%a, %b] along C` (joined).",
    ),
    "PL2101": (
        "attribute", "an attribute or key that is unknown, missing or of another type",
        "A node gives every attribute that has no default, and only attributes that the operator has. A word must be one that `word in [...]` "
        "lists; a number must fit the attribute's dtype. Keys of contracts are known words too, so that a misspelled promise is not lost.",
    ),
    "PL2201": (
        "dtype", "element types that do not agree",
        "Nothing is converted on the way along an edge: a program that mixes bytes and floats by accident is wrong by a factor of 255. Write the "
        "conversion, `@std.cast(%x) {U = f32}` in a pipeline or `f32(x)` in an expression. A type variable stands for one dtype in all operands, "
        "and a filter or condition is a bool.",
    ),
    "PL2301": (
        "rank", "the number of dimensions",
        "The shape in the operator's signature and the shape of the edge have the same number of dimensions; `...` stands for any number of them, "
        "but for the same ones in every operand that writes it. There is no implicit broadcasting.",
    ),
    "PL2401": (
        "shape", "dimensions that do not agree",
        "A symbol is bound once in a signature and is equal wherever it recurs; two expressions agree if they are equal for all sizes. A `where` "
        "that can be decided is decided here, any other is checked when arrays are bound. A dimension may be 0 at run time, but not be written as "
        "0.",
    ),
    "PL2501": (
        "bounds", "a read outside an operand, or not proven inside",
        "Where an operand has no `border`, the compiler proves once, for all sizes that `where` admits, that no read leaves it. A read that it "
        "cannot prove is an error: declare a border, guard the read with `select`, or add the fact to `where`. An index that is never inside is an "
        "error under any border.",
    ),
    "PL2601": (
        "recurrence", "a recurrence that reads ahead or has no base case",
        "A definition may read itself a constant number of steps earlier along one axis, which then runs in order, and needs base cases for the "
        "first steps. Reading a later step, or one at a distance that is not constant, has no order of evaluation.",
    ),
    "PL2701": (
        "cycle", "definitions or nodes that need each other",
        "Nodes may stand in any order, but each must be computable from the inputs: two that need each other's results never start. A loop over "
        "time is written as a recurrence inside one operator.",
    ),
    "PL2702": (
        "dependency", "an `after` or `wait` that cannot be met",
        "`after %x` adds a dependency that no data carries. It may not point at something that itself depends on this node, and a `wait` names an "
        "event that some node records.",
    ),
    "PL2801": (
        "result", "a result that is not defined, not over its whole shape, or not read",
        "Every result in a signature is assigned exactly once and over its whole shape: the pieces of one tensor leave no gap. A result of a node "
        "that nobody reads is only a warning.",
    ),
    "PL2901": (
        "gradient", "an adjoint of no operand or of the wrong shape",
        "`gradient` defines `%dx` for an operand `%x`, with the shape of `%x`, from the operands, the results and the incoming gradients `%dy`. A "
        "name that belongs to no operand would silently be lost in training.",
    ),
    "PL3001": (
        "layout", "the order of axes in memory",
        "A layout is a promise about what each axis means, and memory is row-major in that order: NHWC read as NCHW gives plausible shapes and "
        "wrong pictures. Going from one to the other is a real transposition, which the program writes. An operator without a layout takes any.",
    ),
    "PL3101": (
        "align", "alignment in bytes",
        "`align` on an operand asks for an address divisible by so many bytes (a power of two), on a result it promises one. A promise smaller than "
        "the demand is an error; where nothing is promised, the planned buffers suit any consumer.",
    ),
    "PL3201": (
        "padding", "`same` and `valid`",
        "`padding = same` says that the result is as large as the operand and the window is read around the index (`h + i - 1`); `valid` that the "
        "result is smaller and the window begins at the index (`h + i`). The shapes in the signature must agree with it.",
    ),
    "PL3301": (
        "border", "what lies outside an operand",
        "A border is `replicate`, `reflect`, `reflect101`, `wrap`, `constant(v)` or `none`, one for all axes or a list with one for each axis. "
        "`constant` without its value, or a word that is none of these, does not say what a read outside gives.",
    ),
    "PL3401": (
        "contiguity", "dense, pitched or strided memory",
        "`dense` memory has no gaps, `rows` may have a pitch between rows, `any` may be strided. What may be strided cannot feed an operand that "
        "takes dense memory, since its kernel would read the gaps; a copy makes it dense.",
    ),
    "PL3501": (
        "cross_device", "an operand made on another device",
        "`cross_device = false` forbids operands that live on another device: the kernel was not written for them. Run both nodes on one device, or "
        "insert a copy. Where the key is not written, a staged copy is inserted and listed.",
    ),
    "PL3601": (
        "inplace", "a result that shares memory with an operand",
        "`%y { inplace = %x }` lets a result overwrite its operand. That needs elements of one size and an operator that reads an element before it "
        "overwrites it; otherwise the result would depend on the order in which threads run.",
    ),
    "PL3701": (
        "range", "the range of values",
        "A range is what a value is promised, or asked, to lie in. The producer's range must be contained in the consumer's: pixels in [0, 255] fed "
        "to a function of [0, 1] give an answer that looks fine and is not. Where one side says nothing there is no error.",
    ),
    "PL3801": (
        "color", "the colour space",
        "`srgb`, `linear`, or a word of your own, compared as it is. Averaging or resizing needs linear light, cameras and files deliver sRGB; the "
        "conversion is an operator that the program names.",
    ),
    "PL3901": (
        "finite", "freedom from NaN and infinities",
        "An operator that asks for finite values must not be fed by one that says it may make NaN or infinities: one of them in a mean makes the "
        "whole row NaN. Filter or replace them in between.",
    ),
    "PL4001": (
        "arch", "an architecture that is not met",
        "The operator needs a newer device than one of the declared targets, and no `downgrade` clause says what to do there. A program must build "
        "for every target that it declares. Add a policy, or do not declare the target.",
    ),
    "PL4101": (
        "library", "a library that is unknown or absent",
        "`library` lists what may run this operator, best first; `generated` is the compiler's own kernel. A misspelled name would quietly mean a "
        "slow kernel. Of the libraries cuBLASLt is called, for products of matrices and what its epilogue takes in; where it does not compute an "
        "operator, or is not installed (`pip install 'pipelink-ir[libraries]'`), the next of the list does, and the ledger says why. A list without "
        "`generated` has no next one.",
    ),
    "PL4201": (
        "downgrade", "a policy that cannot be carried out, or is never used",
        "A policy for a weaker device names a dtype that the operator can have (integers, and f8 with a scale, are reached by quantising; another float dtype "
        "must be among `dtypes`), labels that its graph has, or `unsupported`. Its keys must not contradict each other (a zero point of f16, weights wider "
        "than what they meet, a sum whose codes do not fit 32 bits), and something has to be lowered. All that would be noticed only on that device. A clause "
        "that no declared target comes to is a warning. `docs/language.md` has the keys.",
    ),
    "PL4301": (
        "budget", "an error budget that cannot be met",
        "`budget` is the largest error of an operator's results beside the same program without lowering, divided by the largest magnitude of that result: a "
        "positive number. Zero or less can never be met, nor can less than half a step of the dtype that the policy lowers to, and a clause that lowers "
        "nothing makes no error.",
    ),
    "PL4302": (
        "budget", "an error budget that is not kept",
        "Lowered as the policies say, a result is further off than its `budget` allows: as it was measured by `pipelinkc calibrate`, or by an estimate where "
        "nothing was measured, which follows the noise of rounding through the program. The message names the operator in which most of the error begins and "
        "what would mend it: a scale for each channel, a zero point, f16 for that node, another method of calibration, a larger budget. An estimate supposes "
        "values that are spread like normal ones and may be off by a factor of three: up to three times the budget it is a warning.",
    ),
    "PL4401": (
        "target", "a target that does not exist",
        "A target is `cpu`, `reference`, `sm_XX` (75 to 121, with its suffix where it has one), or a name declared by `target @t4 { arch = sm_75 "
        "}`. Families such as `turing` are not architectures that can be compiled for.",
    ),
    "PL4501": (
        "kernel", "a kernel of the user's own that cannot be used",
        "`kernel cuda \"file.cu\"` names a file of CUDA and an `extern \"C\" __global__` function in it. The file is compiled behind \"pipelink.cuh\" "
        "for every CUDA "
        "target; what the compiler says of it is shown at its own lines. `block` and `grid` are lists of one to three sizes, and may be left out: then the "
        "launch is sized for the device.",
    ),
    "PL5001": (
        "streams", "the number of streams",
        "`max_streams` is the number of nodes of one operator that may be in flight at once, at least 1. It bounds workspace and contention; it "
        "cannot forbid an operator from running.",
    ),
    "PL5101": (
        "batch", "the batch dimension",
        "`batch = N` says that calls may be merged along N. That is right only if N is a dimension of every result and nothing is reduced over it: "
        "otherwise one caller's rows would be mixed with another's.",
    ),
    "PL5201": (
        "device", "a device that does not exist",
        "A node is placed on `cpu`, on `cuda:N`, or on a declared target. Where targets are declared, one of them must have the device; a program "
        "whose only target is the CPU has no `cuda:0`. An entry of `--device-map` for a device that nothing asks for is only a warning.",
    ),
    "PL5301": (
        "ledger", "something that was inserted although it is denied",
        "The ledger lists every copy, cast, fallback and the like that the compiler put in or made at a call, with why (`--explain` prints it). `--deny copy` "
        "says that there may be none of a kind: each one is then an error at the line it belongs to. Nothing is denied by default.",
    ),
    "PL5401": (
        "arena", "a place in memory that a plan or a caller gives and that does not fit",
        "A plan may say where an edge lies: `%e { arena = \"cuda:0\", offset = 4096, bytes = 1024 }`. The place lies inside the arena, is aligned and large "
        "enough, and no two edges that may be live together share bytes. `inplace = %x` and `within = %y` hold only where the operator reads, or joins, so "
        "that nothing is lost. An arena that the caller supplies is as large as `arena_bytes` says, dense, aligned, on the device of the run, and apart from "
        "all inputs and results.",
    ),
    "PL5501": (
        "schedule", "a schedule that cannot be followed",
        "`schedule { … }` says how an operator runs, never what it computes, so it may ask only for what leaves the result as it is: a recurrence, a result "
        "and what was made to be stored lie in memory as a whole, what may fail at run time is evaluated only where it is read, `row` needs one reader that "
        "goes through it row by row, definitions share a kernel only over the same box, and a kind of kernel has to fit. What a target does not have is passed "
        "over there and listed in the ledger, unless the section names that target.",
    ),
    "PL6001": (
        "input", "an array that does not match its input",
        "Arrays are checked against the signature when they are bound, before anything runs: every input is there, with the dtype, the number of "
        "dimensions and sizes that agree with each other and with `where`. Nothing is converted or copied silently, since a conversion that nobody "
        "wrote hides mistakes.",
    ),
    "PL6101": (
        "execution", "data that the program cannot be run on",
        "Some facts are known only from the data: an index read from a tensor that lies outside an operand without a border, `argmax` over nothing, "
        "a read from an axis of size 0. They are reported at the place in the program that met them. A `border`, a `where` filter or `empty = zero` "
        "defines the case.",
    ),
    "PL6201": (
        "device_memory", "no memory left on the GPU",
        "What lives between nodes, scratch and the results of a call have to fit in the memory that is free on the device. Nothing was computed; the pipeline "
        "can be called again, with smaller arrays, or after memory was given back (other arrays, the caches of other libraries, other processes).",
    ),
    "PL6202": (
        "launch", "a kernel that the GPU would not run",
        "The driver refused a command, or a kernel failed while it ran. After a refusal the pipeline can be called again. After a fault such as an access "
        "outside of memory no call of this process reaches the device any more, in any library: the process has to be started anew. Kernels of the "
        "compiler's own do not do that; of a hand-written one `pipelinkc verify FILE` and compute-sanitizer find the line.",
    ),
    "PL6301": (
        "verify", "a hand-written kernel that differs from its `compute`",
        "`pipelinkc verify` runs a `kernel cuda` and the `compute` beside it on the same inputs. Where they differ by more than the accuracy that the language "
        "asks for, one of the two is wrong: the first place, both values and the inputs that lead to it are shown.",
    ),
    "PL9001": (
        "unsupported", "a feature that this version does not have",
        "The text or the command is right, but this version of the compiler cannot do it yet. It says so instead of doing something else. On the "
        "target `cpu` everything that an operator's `compute` or `graph` says can be run.",
    ),
    "PL9101": (
        "file", "a file that cannot be read or written",
        "A program, an array or an output could not be read or written: it is missing, is a directory, is not readable, or its content is not what "
        "its name says. The exit status is 2. An output file is replaced only when its new content is complete.",
    ),
    "PL9102": (
        "project", "a project file that says what it cannot mean",
        "`pipelink.yaml` beside a program, or in a folder above it, holds what all programs of a project share. A key that does not exist, a value of the "
        "wrong kind, a target or a path that is not there: each is reported at its line. The exit status is 2. `docs/project-file.md` lists every key.",
    ),
    "PL9103": (
        "tuned", "a file of tuned schedules that cannot be read as one",
        "`edge.tuned.yaml` beside a program, or the file that `--tuned` names, holds schedules that `--tune` has measured. It may be edited, but what "
        "stands there must be an entry with its keys and values: each fault is reported at its line. The exit status is 2. Without the file the compiler "
        "decides by itself, and tuning makes a new one. An entry that is merely out of date is passed over and listed in the ledger. `docs/tuning.md` lists "
        "every key.",
    ),
    "PL9104": (
        "calibration", "a calibration file that cannot be read as one, or is of another program",
        "`edge.calibration.yaml` beside a program, or the file that `--calibration` names, holds the ranges of edges that `pipelinkc calibrate` has measured. "
        "It may be edited, but what stands there must be an edge of the pipeline with finite numbers, the lower one first: each fault is reported at its line. "
        "Where the program has changed since, that is a warning. `pipelinkc calibrate FILE --data …` makes a new file; `docs/calibration.md` lists every key. "
        "The exit status is 2.",
    ),
    "PL9201": (
        "usage", "the command was called in a way that it does not understand",
        "An option, a pass, a pipeline or a file argument does not exist or does not fit the others. The exit status is 2. `pipelinkc --help`, "
        "`pipelinkc COMMAND --help` and `pipelinkc --help-passes` list what there is.",
    ),
}


def _table() -> dict[str, Code]:
    return {code: Code(field, title, why, *PROGRAMS.get(code, ("", ""))) for code, (field, title, why) in _TEXT.items()}


CODES: dict[str, Code] = _table()
"""Every code, in order."""
