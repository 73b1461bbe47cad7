"""`bluebridge down`: ends pairs."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Sequence

from bluebridge.host_tools.keeper import guests, record, registry
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.keeper.registry import Entry

_GRACE = 30.0
"""The seconds that a keeper may take before it is killed; the kernel then ends its pair."""
_PAUSE = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "names", nargs="*", metavar="PAIR", help="its number or one of its guests (default: all)"
    )


def main(options: argparse.Namespace) -> int:
    """End the pairs named, or all, and wait until nothing of them is left; return 0."""
    chosen = _chosen(options.names)
    endings = [_Ending(entry) for entry in chosen]  # all begin to end before we wait for one
    for ending in endings:
        ending.wait()
        print(f"pair {ending.entry.number} is down")
    if not options.names:
        for old in record.ended(set()):
            record.forget_end(old.number)
        if not chosen:
            print("nothing runs")
    return 0


def _chosen(names: Sequence[str]) -> list[Entry]:
    """Return the pairs with these numbers or these guests; all pairs if there are no names."""
    living = registry.living()
    if not names:
        return living
    chosen = {}
    for name in names:
        match = [entry for entry in living if _means(name, entry, entry.record())]
        if match:
            chosen[match[0].number] = match[0]
        else:
            guests.find(name)  # raises: it says what runs, or why this one does not
    return list(chosen.values())


def _means(name: str, entry: Entry, pair: PairRecord | None) -> bool:
    number = re.fullmatch(r"(?:pair)?([0-9]+)", name)
    if number is not None:
        return int(number[1]) == entry.number
    return pair is not None and name in pair.names()


class _Ending:
    """The end of a pair that was told to end."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._deadline = time.monotonic() + _GRACE
        self._keeper = self._find()
        self._send(signal.SIGINT)

    def _find(self) -> int:
        """Return a descriptor of the keeper's process; -1 when the process is gone."""
        while self.entry.alive():
            pair = self.entry.record()
            with contextlib.suppress(OSError):
                if pair is not None:
                    keeper = os.pidfd_open(pair.keeper)
                    if self.entry.alive():  # so the number was its own when we opened it
                        return keeper
                    os.close(keeper)
            time.sleep(_PAUSE)  # it has just been forked, or is just ending
        return -1

    def _send(self, number: signal.Signals) -> None:
        if self._keeper >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._keeper, number)

    def wait(self) -> None:
        """Return when nothing of the pair is left; kill its keeper if that takes too long."""
        if self._keeper >= 0:
            left = max(0.0, self._deadline - time.monotonic())
            if not select.select([self._keeper], [], [], left)[0]:
                self._send(signal.SIGKILL)
                select.select([self._keeper], [], [])
            os.close(self._keeper)
        while self.entry.alive():  # while the folder of a killed keeper is removed
            time.sleep(_PAUSE)
        self.entry.clear()
