"""The guests of a bridge: commands in either or both, conditions that are waited for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.readiness import wait_until

SECONDS = 120.0
ADDRESSES = {"a": "10.9.1.1", "b": "10.9.1.2"}


class Unmet(LabError):
    """A client showed something else than it should."""


class Guests:
    """A pair, and what its bridge is."""

    def __init__(self, pair: Pair, model: BridgeModel) -> None:
        self.pair = pair
        self.model = model

    @property
    def machines(self) -> tuple[Vm, Vm]:
        """Guest a, the upstream side, and guest b."""
        return self.pair.a, self.pair.b

    @property
    def ways(self) -> tuple[tuple[Vm, Vm], tuple[Vm, Vm]]:
        """Return each guest with its peer."""
        a, b = self.machines
        return (a, b), (b, a)

    def run(self, guest: Vm, line: str, limit: float = SECONDS) -> str:
        """Return the output of a shell line; raises `LabError` when it fails or takes longer."""
        return str(guest.run(line, timeout=limit).text).strip()

    def both(self, line: str, limit: float = SECONDS) -> None:
        """A shell line in both guests at once."""
        self.each(lambda guest: self.run(guest, line, limit))

    def each(self, action: Callable[[Vm], object]) -> None:
        """Do something with both guests at once."""

        def run(guest: Vm) -> None:
            action(guest)

        self.pair.together(*(partial(run, guest) for guest in self.machines))

    def until(self, guest: Vm, condition: str, limit: float = SECONDS) -> None:
        """Wait for a shell condition in a guest."""
        self.run(guest, wait_until(condition), limit)

    def messages(self, guest: Vm, words: str) -> str:
        """The last kernel message with `words` since the program began, without its time."""
        said = guest.run(f"dmesg | grep '{words}' | tail -n 1", check=False).text.strip()
        return said.partition("] ")[2] or said

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Raises `Unmet` unless both are the same."""
        if found != wanted:
            raise Unmet(f"{what}: {found!r} instead of {wanted!r}")
