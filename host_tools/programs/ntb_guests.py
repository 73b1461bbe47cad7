"""The guests of a bridge: runs commands in one or both, and waits for conditions."""

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
    """A result of a client differs from the expected one."""


class Guests:
    """The guests of a pair with a bridge, and the model of that bridge."""

    def __init__(self, pair: Pair, model: BridgeModel) -> None:
        self.pair = pair
        self.model = model

    @property
    def machines(self) -> tuple[Vm, Vm]:
        """The guests: a, the upstream side, and b."""
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
        """Run a shell line in both guests at once. Raises `LabError`."""
        self.each(lambda guest: self.run(guest, line, limit))

    def each(self, action: Callable[[Vm], object]) -> None:
        """Call `action` with each guest, both at once. Raises `LabError`."""

        def run(guest: Vm) -> None:
            action(guest)

        self.pair.together(*(partial(run, guest) for guest in self.machines))

    def until(self, guest: Vm, condition: str, limit: float = SECONDS) -> None:
        """Wait until a shell condition holds in a guest.

        Raises `LabError` after `limit` seconds.
        """
        self.run(guest, wait_until(condition), limit)

    def messages(self, guest: Vm, words: str) -> str:
        """Return the guest's last kernel message that contains `words`, without its time."""
        said = guest.run(f"dmesg | grep '{words}' | tail -n 1", check=False).text.strip()
        return said.partition("] ")[2] or said

    def expect(self, what: str, found: object, wanted: object) -> None:
        """Raise `Unmet`, with the name `what`, unless `found` equals `wanted`."""
        if found != wanted:
            raise Unmet(f"{what}: {found!r} instead of {wanted!r}")
