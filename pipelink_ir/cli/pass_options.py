"""The flags about passes, with MLIR's words, shared by the commands that run them."""
from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelink_ir.ir.diagnostics import UsageError

if TYPE_CHECKING:
    from pipelink_ir.passes.hooks import DumpDir, TimePasses
    from pipelink_ir.passes.manager import Hook, Step
    from pipelink_ir.runtime.compile import Artifacts
    from pipelink_ir.runtime.targets import Target


def add_pass_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("passes")
    group.add_argument("-p", "--passes", metavar="LIST", help="the passes to run, 'a,b{key=value}'; 'none' runs none; by default what the target needs")
    group.add_argument("--pass-options", metavar="LIST", help="other options for some of the passes that run, 'assign-streams{max_streams=8}'")
    group.add_argument("--device-map", metavar="MAP", help="devices that stand for those that the program asks for, 'cuda:1=cuda:0,@t4=cpu'")
    group.add_argument("--stop-after", metavar="PASS", help="stop after this pass and print the program")
    group.add_argument("--print-ir-before", metavar="LIST", action="append", default=[], help="print the program before these passes (standard error)")
    group.add_argument("--print-ir-after", metavar="LIST", action="append", default=[], help="print it after these passes")
    group.add_argument("--print-ir-after-all", action="store_true", help="print it after every pass")
    group.add_argument("--print-ir-after-change", action="store_true", help="print it after every pass that changed it")
    group.add_argument("--dump-dir", metavar="DIR", help="write the program after every pass, then what the backend makes, as numbered files")
    group.add_argument("--time-passes", action="store_true", help="print how long each pass took")
    group.add_argument("--no-verify-each", action="store_true", help="do not check the program after every pass")
    group.add_argument("--print-pipeline", action="store_true", help="print the passes that run, as --passes takes them")


@dataclass(slots=True)
class Watch:
    """What looks on while passes run, and what is said when they have."""

    hooks: list[Hook]
    timer: TimePasses | None
    dump: DumpDir | None

    def finish(self) -> None:
        if self.timer is not None:
            self.timer.show()


def steps_of(args: argparse.Namespace, target: Target) -> tuple[Step, ...]:
    """The passes that the flags ask for, by default those of the target; a target that is named replaces those that the program declares."""
    from pipelink_ir.passes.manager import parse_passes, stop_after, with_options
    from pipelink_ir.runtime.targets import checked_for, placed_on
    steps = checked_for(parse_passes(target.passes if args.passes is None else args.passes), [target] if args.target else ())
    steps = placed_on(steps, target, _device_map(args.device_map))
    if args.pass_options is not None:
        steps = with_options(steps, args.pass_options)
    return stop_after(steps, args.stop_after) if args.stop_after else steps


def watch(args: argparse.Namespace, quietly: bool = False) -> Watch:
    """The hooks that the flags ask for, in the order that `passes/hooks.py` wants; `quietly` none of those that show something."""
    from pipelink_ir.passes.hooks import CrashFile, DumpDir, PrintIR, TimePasses, VerifyEach, split_names
    hooks: list[Hook] = []
    timer = TimePasses() if args.time_passes and not quietly else None
    if timer is not None:
        hooks.append(timer)
    if not args.no_verify_each:
        hooks.append(VerifyEach())
    before, after = (tuple(n for text in texts for n in split_names(text)) for texts in (args.print_ir_before, args.print_ir_after))
    if not quietly and (before or after or args.print_ir_after_all or args.print_ir_after_change):
        hooks.append(PrintIR(before, after, args.print_ir_after_all, args.print_ir_after_change))
    dump = None
    if args.dump_dir is not None and not quietly:
        dump = DumpDir(_folder(args.dump_dir))
        hooks.append(dump)
    hooks.append(CrashFile(("--target", args.target) if args.target else ()))
    return Watch(hooks, timer, dump)


def dump_backend(dump: DumpDir, name: str, artifacts: Artifacts) -> None:
    """What the backend made of a pipeline, after the numbered programs, and the pipeline as data."""
    from pipelink_ir.cli import plan
    for extension, text in artifacts.items():
        if extension != "plir":
            dump.write(f"{name}.{extension}", text)
    dump.write(f"{name}.plan.json", plan.json_text(artifacts.module, name))


def _device_map(text: str | None) -> tuple[str, ...]:
    """The entries of `cuda:1=cuda:0,@t4=cpu`."""
    from pipelink_ir.passes.devices import is_device
    entries = tuple(e.strip() for e in text.split(",")) if text is not None else ()
    seen: set[str] = set()
    for e in entries:
        asked, equals, given = e.partition("=")
        for device in (asked, given):
            if not equals or not is_device(device):
                raise UsageError(f"--device-map: '{device if equals else e}' is no {'device' if equals else 'entry DEVICE=DEVICE'}; "
                                 "devices are cpu, cuda:N, and declared targets, @t4")
        if asked in seen:
            raise UsageError(f"--device-map: '{asked}' is given twice")
        seen.add(asked)
    return entries


def _folder(path: str) -> Path:
    if Path(path).exists() and not Path(path).is_dir():
        raise UsageError(f"--dump-dir: '{path}' is not a folder")
    return Path(path)
