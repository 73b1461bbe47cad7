"""DPDK's testpmd on an HCA, opposite testpmd or mlx4_en in the other guest."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bluebridge.host_tools.agent import Command
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm
from tests.campaigns.conformance.program import FAILED, PASSED, Verdict
from tests.campaigns.conformance.session import Session

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


SECONDS = 3.0
QUEUES = 4
FOREIGN = "10.9.0.77"
"""An address that no guest has: testpmd's icmpecho answers for any."""
_QUEUE = re.compile(r"RX Port= *\d+/Queue= *(\d+).*\n +RX-packets: (\d+)")
_CSUM = Path(__file__).parent / "in_guest_csum.py"
_CSUM_PLACE = "/tmp/csum.py"


def one_queue(session: Session) -> Sequence[Verdict]:
    """txonly to rxonly, 64-byte frames with their FCS: none is lost."""
    with _pair(session, "--forward-mode=rxonly", "--forward-mode=txonly") as (rx, tx):
        seconds, sent, received = race(tx, rx, SECONDS)
    rate = f"{received.received / seconds / 1e3:.1f} thousand frames per second"
    return [_same(sent, received, rate)]


def spread(session: Session) -> Sequence[Verdict]:
    """flowgen to rxonly with receive side scaling over four queues."""
    queues = f"--rxq={QUEUES} --txq={QUEUES} --rss-udp"
    with _pair(session, f"--forward-mode=rxonly {queues}", "--forward-mode=flowgen") as (rx, tx):
        _, sent, received = race(tx, rx, SECONDS)
        by_queue = per_queue(rx.tell("stop"))
    told = ", ".join(str(by_queue.get(number, 0)) for number in range(QUEUES))
    if any(by_queue.get(number, 0) < received.received / QUEUES / 4 for number in range(QUEUES)):
        return [Verdict(FAILED, f"frames by queue: {told}")]
    return [_same(sent, received, f"by queue {told}")]


def echoes(session: Session) -> Sequence[Verdict]:
    """icmpecho answers ARP and pings of mlx4_en."""
    machine = session.pair.a
    with Testpmd(machine, _function(machine), "--forward-mode=icmpecho --auto-start"):
        line = f"ping -c 50 -i 0.02 {FOREIGN} | grep -E 'packet loss'"
        found = session.pair.b.run(line, timeout=60).text.strip()
    return [Verdict(PASSED if " 0% packet loss" in found else FAILED, found)]


def checksums(session: Session) -> Sequence[Verdict]:
    """csum with the adapter's checksums mends what mlx4_en's guest sends with wrong ones."""
    a, b = session.pair.machines
    b.agent.put(_CSUM.read_bytes(), _CSUM_PLACE)
    netdev = session.words.netdev
    with Testpmd(a, _function(a), f"--forward-mode=csum --eth-peer=0,{_mac(b, netdev)}") as testpmd:
        testpmd.tell("port stop 0")
        for layer in ("ip", "udp", "tcp"):
            testpmd.tell(f"csum set {layer} hw 0")
        testpmd.tell("port start 0")
        testpmd.tell("start")
        line = f"python3 {_CSUM_PLACE} {netdev} {_mac(a, netdev)}"
        found = b.agent.run(line, timeout=60)
    return [Verdict(PASSED if found.status == 0 else FAILED, found.text.strip())]


def rules(session: Session) -> Sequence[Verdict]:
    """rte_flow: UDP ports to queues or dropped, while nothing else comes in."""
    queues = f"--rxq={QUEUES} --txq={QUEUES} --flow-isolate-all"
    receiver, sender = session.pair.machines
    found: dict[int, dict[int, int]] = {}
    words = f"--forward-mode=rxonly {queues}"
    with Testpmd(receiver, _function(receiver), words) as rx:
        address = _mac(receiver, session.words.netdev)
        for port, actions in ((9, "queue index 2"), (10, "drop"), (11, "queue index 3")):
            pattern = f"eth dst is {address} / ipv4 / udp dst is {port} / end"
            said = rx.tell(f"flow create 0 ingress pattern {pattern} actions {actions} / end")
            if "created" not in said:
                return [Verdict(FAILED, f"the rule for port {port}: {said.strip()}")]
        for port in (9, 10, 11, 12):
            rx.tell("clear port stats all")
            with Testpmd(sender, _function(sender), _txonly(receiver, session, port)) as tx:
                timed(tx, rx, SECONDS / 3)
            found[port] = {
                queue: count for queue, count in per_queue(rx.tell("stop")).items() if count
            }
        rx.tell("flow flush 0")
    reached = {port: set(queues) for port, queues in found.items()}
    right = reached == {9: {2}, 10: set(), 11: {3}, 12: set()}
    return [Verdict(PASSED if right else FAILED, f"queues reached by UDP port: {reached}")]


def per_queue(text: str) -> Mapping[int, int]:
    """Frames received by queue, out of what testpmd prints when forwarding stops."""
    return {int(queue): int(count) for queue, count in _QUEUE.findall(text)}


@contextmanager
def _pair(session: Session, receiving: str, sending: str) -> Iterator[tuple[Testpmd, Testpmd]]:
    """testpmd in both guests, that of guest a receiving, and no frame but theirs."""
    a, b = session.pair.machines
    peer = f"--eth-peer=0,{_mac(a, session.words.netdev)}"
    with (
        _silent(session),
        Testpmd(a, _function(a), receiving) as receiver,
        Testpmd(b, _function(b), f"{sending} {peer}") as sender,
    ):
        yield receiver, sender


@contextmanager
def _silent(session: Session) -> Iterator[None]:
    """Meanwhile the kernels send nothing by themselves."""
    line = f"sysctl -qw net.ipv6.conf.{session.words.netdev}.disable_ipv6="
    session.run_in_both(f"{line}1")
    yield
    session.run_in_both(f"{line}0")


def _same(sent: Counters, received: Counters, what: str) -> Verdict:
    """Whether as many came as went."""
    told = f"{sent.sent} sent, {received.received} received, {what}"
    fine = received.received == sent.sent > 0 and not received.missed
    return Verdict(PASSED if fine else FAILED, told)


def _txonly(receiver: Vm, session: Session, port: int) -> str:
    mac = _mac(receiver, session.words.netdev)
    return f"--forward-mode=txonly --tx-udp=9,{port} --eth-peer=0,{mac}"


def _function(machine: Vm) -> str:
    """Return the PCI address of the HCA."""
    return machine.run("basename $(readlink /sys/class/infiniband/*/device)").text.strip()


def _mac(machine: Vm, netdev: str) -> str:
    return machine.run(f"cat /sys/class/net/{netdev}/address").text.strip()
