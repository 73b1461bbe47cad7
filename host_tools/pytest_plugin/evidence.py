"""What a failed test leaves behind: kernel messages of guests, faults, the last failed request."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bluebridge.device.buslog.reader import Event, Filter, LogError, LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.analyzer.activity import Activity, ActivityKind, activities
from bluebridge.host_tools.analyzer.transaction import OK
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.stacks import with_lines
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.scratch import first_event
from bluebridge.printable import printable, printable_lines

_MOST_BYTES = 4 << 20
"""The bytes of kernel messages that are kept of a guest: the last ones."""
_ALL_LEVELS = f"dmesg | tail -c {_MOST_BYTES}"
_SECONDS = 5.0
"""The time in which a guest must answer; it may hang, which may be why the test failed."""
_MOST_FAULTS = 20
"""The faults that are told, each with a count."""
_WHICH = ("fault", "rule", "verb", "direction")
"""The fields that say which fault or rule of a link took something."""
_REQUESTS = (ActivityKind.WORK_REQUEST, ActivityKind.COMMAND)


def keep_kernel_messages(machines: Iterable[Vm], folder: Path) -> None:
    """Write `dmesg-NAME.txt` for each guest whose console is in `folder`: messages of all levels.

    `machines` are the guests that may still run. Of one that does not answer it is what its console
    has, and says so; what was written of a guest that has ended since is left as it is.
    """
    running = {machine.name: machine for machine in machines}
    for console in sorted(folder.glob("console-*.log")):
        name = console.stem.removeprefix("console-")
        target = folder / f"dmesg-{name}.txt"
        if name not in running and target.exists():
            continue
        try:
            if name not in running:
                raise LabError("it does not run any more")
            text = _asked(running[name])
        except (LabError, OSError) as error:
            said = printable_lines(_end(console))
            text = f"{said}\n-- guest {name} was not asked for its messages ({error}): "
            text += "the lines above are what its console has, errors only\n"
        with contextlib.suppress(OSError):
            target.write_text(with_lines(text), encoding="utf-8")


def _asked(machine: Vm) -> str:
    """Ask a guest by a port of its own, since a command may run on another."""
    if (trouble := machine.trouble()) is not None:
        raise trouble
    with Agent.connect(machine.name, machine.agent_sockets, _SECONDS) as agent:
        return printable_lines(agent.run(_ALL_LEVELS, _SECONDS, check=True).stdout)


def _end(path: Path) -> bytes:
    with path.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - _MOST_BYTES))
        return stream.read(_MOST_BYTES)


@dataclass(frozen=True)
class OnTheBus:
    """The faults and the failed request in a test's bus log, which may explain its failure."""

    faults: tuple[str, ...] = ()
    """A line for each rule, and each fault by name, that took something."""
    request: str = ""
    """The last work request or command that failed; empty if none did."""


@cache
def on_the_bus(folder: Path, node: str) -> OnTheBus:
    """Read the bus log in a test's folder; what cannot be read is left out."""
    faults: tuple[str, ...] = ()
    request = ""
    with contextlib.suppress(LogError, OSError):
        reader = LogReader(folder)
        begin = Filter(first=first_event(reader, node))
        faults = tuple(_faults(reader, begin.first))
        failed: Activity | None = None
        for each in activities(reader, begin):
            wrong = each.kind in _REQUESTS and each.status not in ("", OK)
            if wrong and (failed is None or each.end >= failed.end):
                failed = each
        request = "" if failed is None else _line(failed)
    return OnTheBus(faults, request)


def _faults(reader: LogReader, first: int) -> Iterator[str]:
    counts: Counter[tuple[object, ...]] = Counter()
    last: dict[tuple[object, ...], Event] = {}
    for event in reader.events(Filter(kinds=frozenset((Kind.FAULT,)), first=first)):
        which = event.device, *map(event.values.get, _WHICH)
        if which in counts or len(counts) < _MOST_FAULTS:
            counts[which] += 1
            last[which] = event
    for which, count in counts.items():
        event, times = last[which], f"{count} times, last" if count > 1 else "once"
        yield f"{event.device}: {times} {event.text} (event {event.number})"


def _line(failed: Activity) -> str:
    when = f"event {failed.number}, after {failed.end:.6f} s"
    return printable(f"{failed.device}: {failed.title}: {failed.status} ({when})")
