"""`up --stop-on`: a process that follows the bus log and has it stopped when a condition holds.

It is a process of its own, so that the device server spends nothing on the condition: it only
carries out `log stop` (`bluebridge.device.server.control`).

    python -m bluebridge.host_tools.lab.log_stop LOG CONTROL CONDITION
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bluebridge.device.buslog.marks import MAX_TEXT
from bluebridge.device.buslog.reader import Event, LogError, LogReader
from bluebridge.host_tools.analyzer.conditions import Condition, ConditionError, LiveSearch
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import hardware

LOOK_SECONDS = 0.05
"""The seconds between two looks at the log; the device server writes its log out as often."""
AFTER_SECONDS = 0.2
"""The seconds from the event that was found to the end of the log, which keep its consequences."""
START_SECONDS = 30.0
"""The seconds that the device server may take until it has its control socket."""


def run(log: Path, control: Path, text: str) -> int:
    """Stop the log at the first event that fulfils the condition `text`; return the exit status 0.

    Raises `LabError` when there is no server, `LogError` when the log cannot be read,
    `ConditionError` for a text that is no condition.
    """
    condition = Condition.parse(text)
    _wait_for(control)
    search = LiveSearch(LogReader(log), condition)
    skipped = 0
    while True:
        for event in search.new():
            time.sleep(AFTER_SECONDS)
            hardware.tell(control, f"log stop {reason(text, event, search)}")
            return 0
        if search.skipped > skipped:
            skipped = search.skipped
            print(f"--stop-on: {_skipped(skipped)}", file=sys.stderr, flush=True)
        time.sleep(LOOK_SECONDS)


def reason(text: str, event: Event, search: LiveSearch) -> str:
    """Return the reason for which the log is stopped, cut to the length that the server takes."""
    words = " ".join(search.words(event).split())
    late = f" ({_skipped(search.skipped)})" if search.skipped else ""
    found = f"{text}: event {event.number}, {event.device} {words}"
    return found[: MAX_TEXT - len(late)] + late


def _skipped(count: int) -> str:
    return f"{count} events were deleted before they were looked at: have a larger --ring"


def _wait_for(control: Path) -> None:
    """Wait until the server has its control socket: the log has the names of all devices then."""
    end = time.monotonic() + START_SECONDS
    while not control.exists():
        if time.monotonic() >= end:
            raise LabError("the device server does not get ready")
        time.sleep(LOOK_SECONDS)


def main() -> int:
    """Watch the log that the command line names; return the exit status.

    An error is one line on standard error.
    """
    log, control, text = sys.argv[1:]
    try:
        return run(Path(log), Path(control), text)
    except (LabError, LogError, ConditionError) as error:
        print(f"--stop-on: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
