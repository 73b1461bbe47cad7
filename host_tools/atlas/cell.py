"""One cell of the atlas: a program under a fault, from its start until all is well again."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bluebridge.device import cards
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.faults import Effect, NamedFault
from bluebridge.host_tools.agent import CommandTimedOut
from bluebridge.host_tools.atlas import outcome
from bluebridge.host_tools.atlas.outcome import CRASHED, HUNG, NO_QUEUE, Row
from bluebridge.host_tools.atlas.programs import Program
from bluebridge.host_tools.atlas.stage import QUIET_SECONDS, RESTARTED, YES, Stage
from bluebridge.host_tools.errors import CommandFailed, LabError, UsageError
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import Running, wait_until
from bluebridge.host_tools.show.queues import MR, QP
from bluebridge.host_tools.show.show_command import ask

QUEUES = ("qpn", "cqn", "srqn")
_ANY = {"ms": "300", "times": "2", "index": "0"}
EXAMPLES = {
    cards.CONNECTX3.name: {
        "opcode": "SW2HW_MPT", "status": "BAD_RES_STATE", "event": "COMP",
        "field": "link_up", "value": "0", **_ANY,
    },
    cards.CONNECTX5.name: {
        "opcode": "CREATE_QP", "status": "BAD_RES_STATE", "event": "COMPLETION", **_ANY,
    },
}  # fmt: skip
"""The values of parameters that say no number of something in the adapter, by its name."""
OWN = {"command-wrong": {"opcode": "QUERY_PORT"}, "slow-drain": {"ms": "2"}}
"""The values of faults for which those of `EXAMPLES` are not right."""
BEFORE = frozenset(
    (
        Effect.COMMAND_FAILS, Effect.COMMAND_LATE, Effect.COMMAND_NEVER, Effect.COMMAND_WRONG,
        Effect.WIRE,
    )
)  # fmt: skip
"""Faults that wait for what a program does by itself, so that they are armed before it starts."""
_VECTOR = re.compile(r"^ *\d+: +([\d ]+?) +\S.*(mlx4-|mlx5_comp)(\d+)@", re.M)

_READY_SECONDS = 20.0
_AFTER_SECONDS = 20.0
_USUAL_SECONDS = 60.0
_TIMES_USUAL = 4.0
"""A program is hung after so many times its time without a fault, and not before its limit."""
_GRACE_SECONDS = 1.0
"""Seconds that a program gets after its fault was cleared, before it is killed."""
NEVER_SECONDS = 75.0
"""The limit under `command-never`: mlx4_core and mlx5_core give a command 60 s."""
_TAKING = BEFORE | {
    Effect.CQE_LOST, Effect.CQE_DOUBLED, Effect.CQE_LATE, Effect.CQE_FOREIGN, Effect.CQE_STATUS,
    Effect.EQE_LOST, Effect.INTERRUPT_LOST,
}  # fmt: skip
"""Faults that count what they take; others are there from their order on."""
THINNEST = "ibv_rc_pingpong"
"""The program that is waited for so long; others are hung for the same reason."""


def is_before(fault: NamedFault) -> bool:
    """Whether a fault is armed before the program starts, and not while it runs."""
    return fault.effect in BEFORE


def queue_pair(guest: Vm, owner: str) -> int | None:
    """Return the newest connected queue pair of a program in a guest; None if there is none."""
    text = guest.run("rdma -j resource show qp", check=False).text
    found = [
        each["lqpn"]
        for each in (json.loads(text) if text.strip() else [])
        if each.get("comm") == owner and each.get("state") == "RTS" and each.get("type") != "UD"
    ]
    return max(found, default=None)


def values(fault: NamedFault, pair: Pair, qpn: int | None) -> dict[str, str] | None:
    """Return values for what a fault needs; None if the program has no such queue."""
    given: dict[str, str] = {}
    guest, tell = pair.a, pair.server.tell
    for name in (*fault.needs, *(each for each in fault.takes if each in QUEUES)):
        if name in QUEUES:
            number = _queue(name, qpn, tell)
            if number is None:
                return None
            given[name] = hex(number)
        elif name == "address":
            given[name] = hex(_payload(pair.logs))
        elif name == "key":
            given[name] = hex(_key(qpn, tell))
        elif name == "vector":
            given[name] = str(_busiest_vector(guest))
        else:
            given[name] = EXAMPLES[pair.config.card("a").name][name]
    return given | OWN.get(fault.name, {})


def _queue(name: str, qpn: int | None, tell: Callable[[str], list[str]]) -> int | None:
    """Return the number of a queue that belongs to a queue pair, which may be the pair itself."""
    if qpn is None or name == "qpn":
        return qpn
    (item,) = ask(tell, "a", QP, str(qpn)).items
    number: int | None = item["scqn" if name == "cqn" else "srqn"]
    return number


def _key(qpn: int | None, tell: Callable[[str], list[str]]) -> int:
    """Return a key of the program's protection domain; the newest one if it has no queue pair."""
    regions = ask(tell, "a", MR, None).items  # mlx5_ib keeps thousands in stock
    pairs = [] if qpn is None else ask(tell, "a", QP, str(qpn)).items
    own = [each for each in regions for pair in pairs if each["pdn"] == pair["pdn"]]
    number: int = (own or regions)[-1]["rkey"]
    return number


def _payload(folder: Path) -> int:
    """Return the bus address of the last payload that adapter a moved."""
    found = 0
    for event in LogReader(folder).tail():
        if event.device == "a" and event.what is What.PAYLOAD:
            found = event.address
    return found


def _busiest_vector(guest: Vm) -> int:
    """Return the vector of completions that brought most interrupts."""
    text = guest.run("cat /proc/interrupts").text
    # Vector 0 is that of other events under mlx5_core, and those of completions follow it.
    counts = [
        (sum(map(int, each.split())), int(number) + (kind == "mlx5_comp"))
        for each, kind, number in _VECTOR.findall(text)
    ]
    return max(counts, default=(0, 0))[1]


@dataclass
class Cell:
    """A program and a fault, and what was found so far."""

    stage: Stage
    program: Program
    fault: NamedFault
    status: int | None = None
    output: str = ""
    _number: str = ""
    _happened: bool = False
    """Whether the fault was armed, or carried out."""
    _lost: bool = False
    """Whether the guest panicked, or does not answer."""
    _produced: int = 0
    _running: list[Running] = field(default_factory=list)
    """The server, if the program has one, and its client."""

    def run(self) -> Row:
        """Run the program under the fault; never raises `LabError` for what happens to a guest."""
        begin = time.monotonic()
        ended, kernel = self._outcome()
        if self._lost:
            self.stage.restart(self._a)
        with contextlib.suppress(LabError):
            self._tidy()
        if self._stays():
            self._lost = True
            for machine in self.stage.pair.machines:
                self.stage.restart(machine)
        touched = self._lost or self._produced
        recovered = self.stage.recover() if touched else YES
        if self._lost and recovered == YES:
            recovered = RESTARTED
        self._forget_messages()
        return Row(
            self.program.name, self.fault.name, self._produced,
            outcome.seen_as(self.output) or outcome.last_words(self.status, self.output),
            outcome.status_text(self.status, self.output), kernel, ended, recovered,
            round(time.monotonic() - begin, 1), self.stage.card,
        )  # fmt: skip

    @property
    def _a(self) -> Vm:
        return self.stage.pair.a

    @property
    def _never(self) -> bool:
        return self.fault.effect is Effect.COMMAND_NEVER and self.program.name == THINNEST

    @property
    def _limit(self) -> float:
        if self._never:
            return NEVER_SECONDS
        return max(self.program.limit, _TIMES_USUAL * self.stage.usual.get(self.program.name, 0.0))

    def measure(self) -> None:
        """Note how long the program takes without a fault, here and now. Raises `LabError`."""
        self._serve(self.program.long)
        begin = time.monotonic()
        self._start(self._a, self.program.client, self.program.long)
        self._wait(_USUAL_SECONDS)
        self.stage.usual[self.program.name] = time.monotonic() - begin
        self._tidy()
        self._forget_messages()

    def _outcome(self) -> tuple[str, str]:
        """Return how it ended, and the kernel's line."""
        try:
            self._go()
            kernel = outcome.kernel_line(self._a.run("dmesg -r").text)
        except LabError as error:
            self._lost = True
            kernel = error.what
        counts = self.fault.effect in _TAKING
        self._produced = self.stage.taken(self._number) if counts else int(self._happened)
        if self._number:
            self.stage.pair.server.tell(f"disarm a {self._number}")
            self._number = ""
        if self._lost:
            return CRASHED, kernel
        if not self._happened:
            return NO_QUEUE, kernel
        said = outcome.judge(self._produced, self.status)
        if said == HUNG:
            self._wait(_GRACE_SECONDS)
        return said, kernel

    def _go(self) -> None:
        """Start both sides with the fault in place; wait for the client's end, or its limit."""
        before = is_before(self.fault)
        count = self.program.brief if before else self.program.long
        if before:
            self._arm(None)
        self._serve(count)
        self._start(self._a, self.program.client, count)
        if not before:
            self._arm(self._queue())
        self._wait(self._limit)

    def _start(self, guest: Vm, line: str, count: int) -> Running:
        # In one stream, so that events and errors come in the order in which they were printed.
        started = Running(guest, f"({line.replace('COUNT', str(count))}) 2>&1")
        self._running.append(started)
        return started

    def _serve(self, count: int) -> None:
        b = self.stage.pair.b
        if self.program.before:
            b.run(self.program.before)
        if self.program.server:
            self._start(b, self.program.server, count).until(self.program.ready)

    def _queue(self) -> int | None:
        """Wait until the program has a connected queue pair; None if it ended before."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            number = queue_pair(self._a, self.program.owner)
            if number is not None:
                return number
            if self._running[-1].wait(0) is not None:
                break
        return None

    def _arm(self, qpn: int | None) -> None:
        tell = self.stage.pair.server.tell
        found = values(self.fault, self.stage.pair, qpn)
        if found is None:
            return
        words = " ".join(f"{name}={value}" for name, value in found.items())
        with contextlib.suppress(UsageError):  # the queue has gone meanwhile
            answer = tell(f"arm a {self.fault.name} {words}".rstrip())
            self._number = answer[0] if answer else ""
            self._happened = True

    def _wait(self, seconds: float) -> None:
        """Wait for the client's end; its status stays None when it has none after `seconds`.

        Nor does it wait so long behind the program's limit once nothing moves any more.
        """
        client = self._running[-1]
        begin, before = time.monotonic(), self.stage.traffic()
        while self.status is None and (left := begin + seconds - time.monotonic()) > 0:
            if (ended := client.wait(min(left, QUIET_SECONDS))) is not None:
                self.status = ended.status
            now = self.stage.traffic()
            quiet, before = abs(now - before) < self.stage.quiet, now
            if quiet and not self._never and time.monotonic() - begin >= self.program.limit:
                break
        self.output = client.output

    def _tidy(self) -> None:
        """End both sides, and put back what they changed. Raises `LabError`."""
        for program in self._running:
            program.kill()
        for machine, line in (
            (self._a, self.program.after),
            (self.stage.pair.b, self.program.over),
        ):
            if line:
                with contextlib.suppress(CommandFailed, CommandTimedOut):
                    machine.run(line, timeout=_AFTER_SECONDS, check=False)

    def _stays(self) -> bool:
        """Return True if something of the program has not gone, such as a disk that is stuck."""
        if not self.program.left:
            return False
        gone = wait_until(f"! ({self.program.left}) > /dev/null 2>&1")
        try:
            for machine in self.stage.pair.machines:
                machine.run(gone, timeout=_AFTER_SECONDS)
        except LabError:
            return True
        return False

    def _forget_messages(self) -> None:
        for machine in self.stage.pair.machines:
            machine.run("dmesg -c > /dev/null")
