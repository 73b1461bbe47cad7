"""`bluebridge mmiotrace`: does the bus log tell all that the guest's kernel did?"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bluebridge.device.buslog.reader import LogError, LogReader
from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.mmiotrace import session
from bluebridge.host_tools.mmiotrace.compare import Verdict, compare, logged
from bluebridge.host_tools.mmiotrace.mmiotrace_options import TRACE
from bluebridge.host_tools.mmiotrace.trace import parse
from bluebridge.host_tools.processes.termination import termination_as_exception
from bluebridge.host_tools.progress import Progress, Reporter


def main(options: argparse.Namespace) -> int:
    """Record and compare; return 0 if every access matches. Raises `LabError`."""
    if options.compare:
        verdict = _read(options.compare[0], options.compare[1], options.device)
    else:
        with termination_as_exception():
            verdict = record(
                Reporter(quiet=options.quiet),
                log=options.log,
                blueflame=options.blueflame,
                stock=options.stock,
            )
    print(verdict.text())
    return 0 if verdict.same else 1


def record(
    progress: Progress, *, log: Path | None = None, blueflame: str = "on", stock: bool = False
) -> Verdict:
    """Boot a pair, trace guest a, compare; return the verdict.

    The trace stays beside the bus log. Raises `LabError`.
    """
    config = LabConfig(log=log, vfio=False, cpus=1, options=ServerOptions(blueflame=blueflame))
    with tempfile.TemporaryDirectory() as folder:
        modules = [] if stock else session.helper(Path(folder))
        with Pair(config, progress) as pair:
            progress("tracing guest a while its drivers come, work and go")
            text = session.life_of_a_driver(pair, modules)
        (pair.logs / TRACE).write_text(text)
        progress(f"trace and bus log: {pair.log_name}")
    return _compare(text, pair.logs, pair.a.name)


def _read(trace: Path, folder: Path, device: str) -> Verdict:
    try:
        text = trace.read_text(errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {trace}: {error.strerror}", "give a trace") from error
    return _compare(text, folder, device)


def _compare(text: str, folder: Path, device: str) -> Verdict:
    trace = parse(text)
    try:
        reader = LogReader(folder)
        if reader.dropped:
            raise LabError(f"the beginning of {folder} was dropped", "trace a shorter run")
        return compare(trace, logged(reader, device))
    except LogError as error:
        raise UsageError(str(error)) from error
