"""The pair of a soak: the messages of both kernels and of the device server are collected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bluebridge.host_tools.campaigns.conformance.session import ADDRESSES, Session, bring_up
from bluebridge.host_tools.campaigns.conformance.setups import Setup
from bluebridge.host_tools.campaigns.soak import kernel_log
from bluebridge.host_tools.campaigns.soak.rounds import Stock
from bluebridge.host_tools.machine.vm import Vm

Say = Callable[[str, str], None]
_ANSWER = "until ping -c 1 -W 1 {} > /dev/null; do :; done"
_ANSWER_SECONDS = 60.0


class SoakSession(Session):
    """A conformance session whose guests are disturbed and whose server's messages are read."""

    def __init__(self, setup: Setup, logs: Path, say: Say) -> None:
        """`say` gets a title and a text for the transcript."""
        super().__init__(setup, logs, bus_log=True)
        self._say = say
        self._read = 0
        self.recovering: set[str] = set()
        """Guests whose kernel is to tell of a recovery before `complaints` is asked next."""

    def _prepare(self, stack: contextlib.ExitStack) -> None:
        for machine in self.pair.machines:
            self.forget_boot(machine)
        super()._prepare(stack)

    def forget_boot(self, machine: Vm) -> None:
        """Skip the kernel's messages from before the snapshot: the soak did not cause them."""
        machine.run("dmesg -c > /dev/null")

    def settle(self, *changed: Vm) -> None:
        """Bring the drivers of `changed` up again, and wait until the guests answer pings."""
        self.pair.together(*(partial(bring_up, machine) for machine in changed))
        self.words = self.find_words()
        for machine, target in ((self.pair.a, "b"), (self.pair.b, "a")):
            machine.run(_ANSWER.format(ADDRESSES[target]), timeout=_ANSWER_SECONDS)

    def stock(self) -> Stock:
        """Return the stock of the device server now."""
        return Stock.of(self.pair.server)

    def complaints(self) -> list[str]:
        """Return the complaints of kernels and server since the last call."""
        found = []
        for machine in self.pair.machines:
            said = machine.run("dmesg -r -c").text
            self._say(f"kernel of guest {machine.name}", said)
            recovering = machine.name in self.recovering
            bad = kernel_log.complaints(said.splitlines(), recovering)
            found += [f"kernel of guest {machine.name}: {line}" for line in bad]
        self.recovering.clear()
        said = self.pair.server.messages()
        new, self._read = said[self._read :], len(said)
        if new.strip():
            self._say("device server", new)
        return found + [f"device server: {line}" for line in new.splitlines() if line.strip()]
