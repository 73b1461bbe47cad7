"""`bluebridge mmiotrace`: does the bus log tell all that the guest's kernel did?

mmiotrace runs from before the driver is loaded until after it is unloaded.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import LabError, Progress, Reporter, UsageError
from bluebridge.host_tools.lab.artefacts import image_errors
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.mmiotrace.trace import Verdict, compare, logged, parse
from bluebridge.host_tools.processes import termination_as_exception
from bluebridge.host_tools.programs import perftest
from bluebridge.printable import printable_lines

TRACE = "mmiotrace.txt"
"""The name of the file with the guest's record, beside the bus log."""

_TRACING = "/sys/kernel/tracing"
_BUFFER_KIB = 32 << 10
_HELPER = Path(__file__).resolve().parent / "whole_pages"
_LOAD_SECONDS, _UNLOAD_SECONDS = 300.0, 60.0
_FILE = "/tmp/mmiotrace"
TRAFFIC = (
    "ping -c 3 -i 0.2 {peer}",
    "ib_write_lat -n 5 -s 64 -d mlx4_0",  # through mappings of user space, which are left out
)
"""The command whose traffic crosses the link while the trace is taken."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Boot two guests with one CPU each, let the kernel of guest a record the register accesses "
        "of its mlx4 drivers from their loading to their unloading, and hold that record against "
        "the bus log, one access after the other. Exit status 0 if all match."
    )
    parser.add_argument(
        "--blueflame", choices=("on", "off"), default="on", help="advertise BlueFlame (default on)"
    )
    parser.add_argument(
        "--stock",
        action="store_true",
        help="without the module that shows the tracer mappings inside a page",
    )
    parser.add_argument(
        "--log", type=Path, metavar="DIR", help=f"folder for the bus log and the trace, {TRACE}"
    )
    parser.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("TRACE", "DIR"),
        help="no guests: hold a trace you made against a bus log",
    )
    parser.add_argument(
        "--device", default="a", help="whose accesses of that log (default a)", metavar="NAME"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def start(machine: Vm, modules: list[Path]) -> None:
    """Load `modules`, which the tracer needs (`helper`), and begin to trace.

    The tracer switches all processors of the guest but the first off.
    """
    for module in modules:
        machine.agent.put(module, f"/tmp/{module.name}")
        machine.run(["insmod", f"/tmp/{module.name}"])
    machine.run(
        f"mountpoint -q {_TRACING} || mount -t tracefs none {_TRACING}; cd {_TRACING} &&"
        f" echo {_BUFFER_KIB} > buffer_size_kb && echo mmiotrace > current_tracer"
    )


def stop(machine: Vm) -> str:
    """Stop tracing; return the record as the kernel prints it."""
    # A pipe that is read to its end after the recording stopped ends by itself. Into a file: cat
    # splices it into another pipe, and then the kernel leaves the lines of PCI devices out.
    machine.run(
        f"cd {_TRACING} && echo 0 > tracing_on && cat trace_pipe > {_FILE} &&"
        " echo nop > current_tracer && echo 1 > tracing_on"
    )
    return machine.agent.read(_FILE).decode()


def helper(folder: Path) -> list[Path]:
    """Build the module by which the tracer sees mappings inside a page into `folder`."""
    from bluebridge.images import kmod

    with image_errors():
        return kmod.build(_HELPER, folder)


def life_of_a_driver(pair: Pair, modules: list[Path]) -> str:
    """Trace guest a from before its driver loads until after it has gone; return the trace.

    Nobody drives the adapters yet (`LabConfig(vfio=False)`). In between there is traffic.
    """
    start(pair.a, modules)
    pair.both(_load)
    ping, verbs = TRAFFIC
    pair.b.run(ping.format(peer=_address(0)))
    perftest.run(pair, verbs, _address(0), _UNLOAD_SECONDS)
    pair.a.run("rmmod ib_ipoib mlx4_ib mlx4_en && rmmod mlx4_core", timeout=_UNLOAD_SECONDS)
    return stop(pair.a)


def _load(machine: Vm) -> None:
    address = ADDRESSES[0 if machine.name == "a" else 1]
    machine.run(["bluebridge-mlx4", address], timeout=_LOAD_SECONDS)


def _address(number: int) -> str:
    return ADDRESSES[number].partition("/")[0]


def main(options: argparse.Namespace) -> int:
    """Record and compare; return 0 if every access matches. Raises `LabError`."""
    if options.compare:
        trace, folder = options.compare
        try:
            text = trace.read_text(errors="replace")
        except OSError as error:
            raise UsageError(f"cannot read {trace}: {error.strerror}", "give a trace") from error
        verdict = _compare(text, folder, options.device)
    else:
        with termination_as_exception():
            verdict = record(
                Reporter(quiet=options.quiet),
                log=options.log,
                blueflame=options.blueflame,
                stock=options.stock,
            )
    print(printable_lines(verdict.text()))
    return 0 if verdict.same else 1


def record(
    progress: Progress, *, log: Path | None = None, blueflame: str = "on", stock: bool = False
) -> Verdict:
    """Boot a pair, trace guest a, compare; return the verdict.

    The trace stays beside the bus log. Raises `LabError`.
    """
    config = LabConfig(log=log, vfio=False, cpus=1, options=ServerOptions(blueflame=blueflame))
    with tempfile.TemporaryDirectory() as folder:
        modules = [] if stock else helper(Path(folder))
        with Pair(config, progress) as pair:
            progress("tracing guest a while its drivers come, work and go")
            text = life_of_a_driver(pair, modules)
        (pair.logs / TRACE).write_text(text, encoding="utf-8")
        progress(f"trace and bus log: {pair.log_name}")
    return _compare(text, pair.logs, pair.a.name)


def _compare(text: str, folder: Path, device: str) -> Verdict:
    trace = parse(text)
    try:
        reader = LogReader(folder)
        if reader.dropped:
            raise LabError(f"the beginning of {folder} was dropped", "trace a shorter run")
        return compare(trace, logged(reader, device))
    except LogError as error:
        raise UsageError(str(error)) from error
