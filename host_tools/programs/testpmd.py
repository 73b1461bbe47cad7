"""DPDK's testpmd in a guest: its archive, its start, its commands, its counters."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bluebridge.host_tools.agent import Command
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import artefacts
from bluebridge.host_tools.machine.vm import Vm

_READY_SECONDS = 60.0
_PIPE, _LOG = "/tmp/testpmd.in", "/tmp/testpmd.log"
_PROMPT = "grep -c '^testpmd>'"
_TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"
"""A Python program that runs testpmd on a terminal, where it prints in order, line by line."""
_EAL = "-l 0-1 -n 2 --no-telemetry --file-prefix=lab"
_POOL = "--total-num-mbufs=8192 --no-lsc-interrupt --nb-cores=1"
_COUNTER = re.compile(r"([RT]X-(?:packets|missed|errors)): *(\d+)")
_COUNTERS = ("RX-packets", "RX-missed", "TX-packets", "TX-errors")


@dataclass(frozen=True)
class Counters:
    """The counters of one port.

    `missed` packets came without a posted receive, `refused` ones found the ring full.
    """

    received: int
    missed: int
    sent: int
    refused: int


def install(machine: Vm, archive: Path) -> None:
    """Unpack testpmd over the guest's root. Raises `LabError`."""
    artefacts.unpack(machine, [archive])


class Testpmd:
    """Context manager around a testpmd that waits for commands; `words` are its own options.

    `function` is the PCI address of its port. Raises `LabError` with testpmd's output.
    """

    __test__ = False

    def __init__(self, machine: Vm, function: str, words: str = "") -> None:
        self._machine = machine
        eal = f"{_EAL} -a {function}"
        self._line = (
            f"rm -f {_PIPE} {_LOG}; mkfifo {_PIPE}; exec 3<> {_PIPE}; "
            f"exec python3 -c '{_TERMINAL}' dpdk-testpmd {eal} -- -i {_POOL} {words} "
            f"<&3 > {_LOG} 2>&1"
        )
        self._command: Command | None = None

    def __enter__(self) -> Self:
        self._command = self._machine.agent.start(self._line)
        self._wait(f"{_PROMPT} {_LOG}", _READY_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._command is not None
        try:
            self._machine.run(f"echo quit > {_PIPE}")
            self._wait("! pidof dpdk-testpmd", _READY_SECONDS)
        finally:
            self._command.kill()

    def tell(self, command: str, seconds: float = 20.0) -> str:
        """Give a command; return the output until the next prompt. Raises `LabError`."""
        line = (
            f"n=$({_PROMPT} {_LOG}); s=$(stat -c %s {_LOG}); echo '{command}' > {_PIPE}; "
            f"until [ $({_PROMPT} {_LOG}) -gt $n ]; do sleep 0.05; done; tail -c +$((s+1)) {_LOG}"
        )
        return self._machine.run(line, timeout=seconds).text.replace("\r", "")

    def counters(self) -> Counters:
        """Return the counters of the port since the start or `clear`. Raises `LabError`."""
        found = counters_of(self.tell("show port stats 0"))
        if found is None:
            raise LabError("testpmd printed no counters", transcript=self.log())
        return found

    def log(self) -> str:
        """Return everything that testpmd has printed."""
        return self._machine.agent.run(f"cat {_LOG}").text.replace("\r", "")

    def _wait(self, condition: str, seconds: float) -> None:
        line = (
            f"for n in $(seq {int(seconds * 10)}); do {condition} && exit; sleep 0.1; done; exit 1"
        )
        found = self._machine.agent.run(f"({line}) > /dev/null", timeout=seconds * 2)
        if found.status != 0:
            raise LabError("testpmd does not answer", "see its output", self.log())


def counters_of(text: str) -> Counters | None:
    """Return the counters in testpmd's output on a port; None when there are none."""
    found = dict(_COUNTER.findall(text))
    if not found.keys() >= set(_COUNTERS):
        return None
    return Counters(*(int(found[name]) for name in _COUNTERS))


def timed(sender: Testpmd, receiver: Testpmd, seconds: float) -> float:
    """Let `sender` forward for about `seconds`; return the seconds that it took."""
    receiver.tell("start")
    sender.tell("start")
    start = time.monotonic()
    time.sleep(seconds)
    sender.tell("stop")
    return time.monotonic() - start


def race(sender: Testpmd, receiver: Testpmd, seconds: float) -> tuple[float, Counters, Counters]:
    """Let `sender` forward; return the seconds, its counters and those of `receiver`.

    The counters are read when everything that was sent has arrived.
    """
    took = timed(sender, receiver, seconds)
    sent, received = sender.counters(), receiver.counters()
    while (later := receiver.counters()) != received:
        received = later
    return took, sent, received
