"""Finds a side of a running pair by its name, or says why there is none."""

from __future__ import annotations

from pathlib import Path

from bluebridge.host_tools.agent import Agent
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import record, registry
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord
from bluebridge.host_tools.keeper.registry import Entry
from bluebridge.host_tools.lab import hardware

_CONNECT_SECONDS = 30.0


class Guest:
    """A side of a pair that runs: a guest, or a host in the place of one."""

    def __init__(self, entry: Entry, pair: PairRecord, name: str) -> None:
        self.name = name
        self.entry = entry
        self.pair = pair

    @property
    def record(self) -> GuestRecord:
        """The record of the guest that its keeper had written when the guest was found."""
        return self.pair.guest(self.name)

    @property
    def called(self) -> str:
        """The side in words for people: `guest a` or `host b`."""
        return self.record.called

    def need_guest(self) -> None:
        """Raise `UsageError` for a host, which has no machine."""
        if self.record.functions:
            mend = f"`bluebridge python {self.name}` runs programs with its card"
            raise UsageError(f"{self.name} is a host: no machine, but programs here", mend)

    def trouble(self) -> LabError | None:
        """Return why the guest cannot be used now; None if it can.

        It is cheap enough to be called several times a second.
        """
        pair = self.entry.record()
        if not self.entry.alive():
            return _ended(self.name) or LabError(f"{self.called}: its pair was taken down")
        if pair is None:
            return None  # its folder is being removed, and the next look will see it gone
        if pair.state == record.ENDING:
            return LabError(f"{self.called}: its pair ended: {pair.why}", f"logs: {pair.logs}")
        guest = pair.guest(self.name)
        if guest.state == record.ENDED:
            mend = f"read {guest.transcript}; `bluebridge restart {self.name}` brings it back"
            from bluebridge.host_tools.machine.console import last_report  # pexpect is dear

            report = last_report(Path(guest.transcript))
            return LabError(f"{self.called}: {guest.why}", mend, report)
        if guest.state == record.RESTARTING:
            return LabError(f"{self.called}: {guest.why}", "try again in a moment")
        if pair.state == record.STARTING:
            return LabError(f"{self.called} is not up yet", "wait for `bluebridge up`")
        return None

    def tell(self, line: str) -> list[str]:
        """Have the pair's server carry out a line of `bluebridge.device.server.control`.

        Returns the lines of its answer. Raises `LabError`, `UsageError` with its objection.
        """
        assert self.pair.control is not None, "the guest is not up"
        return hardware.tell(self.pair.control, line)

    def check(self) -> None:
        """Raise `LabError` when the guest cannot be used now."""
        if (trouble := self.trouble()) is not None:
            raise trouble

    def agent(self, timeout: float = _CONNECT_SECONDS) -> Agent:
        """Return a new connection to the guest's agent; its waits end with the guest or the pair.

        Raises `LabError`.
        """
        self.need_guest()
        self.check()
        sockets = [Path(path) for path in self.record.agents]
        return Agent.connect(self.name, sockets, timeout, alarms=[self.trouble])


def find_up(name: str) -> Guest:
    """Return the side called `name`, or the one that has the HCA `name`, once it is up.

    Raises `LabError` when there is none or it is not up.
    """
    guest = find(name.partition(".")[0])
    guest.check()
    if guest.pair.control is None:
        raise LabError(f"{guest.called} is not up yet", "wait for `bluebridge up`")
    return guest


def find(name: str) -> Guest:
    """Return the side called `name`.

    Raises `LabError` that says which run, or why this one no longer does.
    """
    known: list[str] = []
    for entry, pair in registry.pairs():
        if name in pair.names():
            return Guest(entry, pair, name)
        known += pair.names()
    if (ended := _ended(name)) is not None:
        raise ended
    if not known:
        raise LabError("no guest runs", "`bluebridge up` starts a pair")
    raise UsageError(f"there is no guest {name}", f"these run: {', '.join(known)}")


def _ended(name: str) -> LabError | None:
    """Return why the pair of guest `name` ended, if there is a record of its end."""
    for known in record.ended({entry.number for entry in registry.living()}):
        if name in known.guests:
            return LabError(
                f"guest {name}: pair {known.number} ended: {known.why}",
                f"logs: {known.logs}; `bluebridge up` starts a new one",
            )
    return None
