"""What is killed, what the documents promise then, and whether it came about."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.killed.lab import FLOWS, Broken, Lab, ended, last_line, wait

TOLD_SECONDS: Final = 5.0
"""From the end of a pair to the line of whoever waits for it (docs/lab.md)."""
GONE_SECONDS: Final = 10.0
"""From the end of a pair to the end of its last process and folder (docs/lab.md)."""
ORPHANED_SECONDS: Final = 5.0
"""From the end of a `run` to that of its command in the guest: two in docs/agent.md, and the time
of the question."""
PEER_SECONDS: Final = 10.0
"""From the end of krping's server to the error of its client, whose requests are not answered; a
client without a request under way waits on."""


@dataclass(frozen=True)
class Told:
    """How long it took until the others knew, and until nothing was left; None: nothing to tell."""

    told: float | None = None
    gone: float | None = None


def _pair_ends(word: str) -> Callable[[Lab, float], Told]:
    """Everybody is told in a line that has `word`, and nothing is left."""

    def check(lab: Lab, since: float) -> Told:
        told = 0.0
        for side in (lab.server, lab.client):
            told = max(told, ended(side.process, since))
            line = last_line(side.errors)
            if side.process.returncode != 125 or not line.startswith("bluebridge: "):
                raise Broken(f"`run` in {side.name}: {side.process.returncode}, {line!r}")
        _within("the others were told", told, TOLD_SECONDS)
        lab.console_ends()
        wait(lambda: not lab.left(), "something is left")
        gone = time.monotonic() - since
        _within("something was left", gone, GONE_SECONDS)
        status, line = lab.commands.bad("run", "a", "true")
        if status != 125 or word not in line:
            raise Broken(f"`run` afterwards: {status}, {line!r} without {word!r}")
        return Told(told, gone)

    return check


def _client_ends(lab: Lab, since: float) -> Told:
    """krping's client is killed in its guest; its server is served again (`start_traffic`)."""
    lab.wait_for_no_krping("b")
    gone = time.monotonic() - since
    _within("krping ran on in b", gone, ORPHANED_SECONDS)
    return Told(None, gone)


def _server_ends(lab: Lab, since: float) -> Told:
    """krping's server is killed in its guest: its client's requests fail, if any are under way.

    Who only waits for a message waits on, as on a wire (docs/architecture.md).
    """
    lab.wait_for_no_krping("a")
    gone = time.monotonic() - since
    _within("krping ran on in a", gone, ORPHANED_SECONDS)
    process = lab.client.process
    try:
        process.wait(PEER_SECONDS)
    except subprocess.TimeoutExpired:
        return Told(None, gone)
    if process.returncode in (0, 125):
        raise Broken(f"krping's client ended with {process.returncode}: {lab.client.last_words}")
    return Told(time.monotonic() - since, gone)


def _nothing_happens(lab: Lab, since: float) -> Told:
    """The traffic goes on."""
    seen = lab.client.output.count(FLOWS)
    wait(lambda: lab.client.output.count(FLOWS) > seen or lab.over, "no traffic any more")
    if lab.over:
        raise Broken(f"krping ended: {lab.client.last_words}")
    return Told()


def _console_opens_again(lab: Lab, since: float) -> Told:
    """The traffic goes on, and the console may be had by another."""
    lab.open_console()
    return _nothing_happens(lab, since)


def _folder_goes_at_down(lab: Lab, since: float) -> Told:
    """The traffic goes on, and `down` leaves nothing."""
    _nothing_happens(lab, since)
    lab.end_traffic()
    lab.commands.good("down")
    wait(lambda: not lab.left(), "something is left")
    return Told()


VICTIMS: Final[dict[str, Callable[[Lab, float], Told]]] = {
    "device server": _pair_ends("device server"),
    "QEMU of a": _pair_ends("guest a"),
    "QEMU of b": _pair_ends("guest b"),
    "keeper": _pair_ends("keeper"),
    "remover of the first folder": _folder_goes_at_down,
    "remover of the second folder": _folder_goes_at_down,
    "`run` of the krping server": _server_ends,
    "`run` of the krping client": _client_ends,
    "`console`": _console_opens_again,
}


def _within(what: str, took: float, most: float) -> None:
    if took > most:
        raise Broken(f"{what} for {took:.1f} s, {most:g} are promised")
