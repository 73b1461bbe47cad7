"""`up --stop-on`: a process that follows the bus log and has it stopped when a condition holds.

It is a process of its own, so that the device server spends nothing on the condition: it only
carries out `log stop` (`bluebridge.device.server.log_control`).

    python -m bluebridge.host_tools.lab.log_stop LOG CONTROL CONDITION
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bluebridge.device.buslog.marks import MAX_TEXT
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError
from bluebridge.host_tools.analyzer.conditions.live_search import LiveSearch
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import hardware_control

LOOK_SECONDS = 0.05
"""Between two looks; the device server writes its log out as often."""
AFTER_SECONDS = 0.2
"""From the event that was found to the end of the log: what it leads to is kept as well."""
START_SECONDS = 30.0
"""The time that the server may take until it has its control socket."""


def run(log: Path, control: Path, text: str) -> int:
    """Stop the log at the first event that fulfils the condition; the exit status.

    Raises `LabError` when there is no server, `LogError` when the log cannot be read.
    """
    condition = Condition.parse(text)
    _wait_for(control)
    search = LiveSearch(LogReader(log), condition)
    skipped = 0
    while True:
        for event in search.new():
            time.sleep(AFTER_SECONDS)
            hardware_control.tell(control, f"log stop {reason(text, event, search)}")
            return 0
        if search.skipped > skipped:
            skipped = search.skipped
            print(f"--stop-on: {_skipped(skipped)}", file=sys.stderr, flush=True)
        time.sleep(LOOK_SECONDS)


def reason(text: str, event: Event, search: LiveSearch) -> str:
    """Why the log is stopped, cut to what the server takes."""
    words = " ".join(search.words(event).split())
    late = f" ({_skipped(search.skipped)})" if search.skipped else ""
    found = f"{text}: event {event.number}, {event.device} {words}"
    return found[: MAX_TEXT - len(late)] + late


def _skipped(count: int) -> str:
    return f"{count} events were deleted before they were looked at: have a larger --ring"


def _wait_for(control: Path) -> None:
    """Until the server has its control socket: the log has the names of all devices then."""
    end = time.monotonic() + START_SECONDS
    while not control.exists():
        if time.monotonic() >= end:
            raise LabError("the device server does not get ready")
        time.sleep(LOOK_SECONDS)


def main() -> int:
    """Read the command line; one line on standard error says what went wrong."""
    log, control, text = sys.argv[1:]
    try:
        return run(Path(log), Path(control), text)
    except (LabError, LogError, ConditionError) as error:
        print(f"--stop-on: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
