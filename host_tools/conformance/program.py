"""What a program of the conformance run is: commands, limits and the verdict over its output."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bluebridge.host_tools.conformance.session import Session

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Setup:
    """A kind of pair: what the device server is told, and what runs before the HCA is up."""

    name: str
    what: str
    server_arguments: tuple[str, ...] = ()
    ethernet: bool = True
    """Link layer: Ethernet (RoCE) or InfiniBand."""
    gid_type: str = "IB/RoCE v1"
    """Kind of the GID that programs are told to use, as the kernel's `gid_attrs/types` calls it."""
    service: str = ""
    """A shell line that runs in guest a from before its HCA comes up to the pair's end."""
    ntb: str = ""
    """A bridge of this model and DMA engines instead of HCAs, with their drivers loaded."""


ROCE = Setup("roce", "RoCE v1, the default")
INFINIBAND = Setup(
    "infiniband", "InfiniBand, managed by the fabric", ("--link", "infiniband"), ethernet=False
)
BLUEFLAME = Setup("blueflame", "RoCE v1, sends through BlueFlame", ("--blueflame", "on"))
ROCE_V2 = Setup("roce-v2", "RoCE v2 of the ConnectX-3 Pro", ("--pro",), gid_type="RoCE v2")
OPENSM = Setup(
    "opensm",
    "InfiniBand, managed by opensm in guest a",
    ("--link", "infiniband", "--sm", "none"),
    ethernet=False,
    service="modprobe mlx4_core; until [ -e /dev/infiniband/umad0 ]; do sleep 0.1; done; "
    "exec opensm --log_file /var/log/opensm.log",
)
SETUPS = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, OPENSM)
GEN4 = Setup("ntb-intel-gen4", "Intel NTB 8086:347e and I/OAT 3.4", ntb="intel-gen4")
SWITCHTEC = Setup("ntb-switchtec", "Switchtec 11f8:8531 and I/OAT 3.4", ntb="switchtec")
GEN1 = Setup("ntb-intel-gen1", "Intel NTB 8086:0e0d and I/OAT 3.2", ntb="intel-gen1")
BRIDGES = (GEN4, SWITCHTEC, GEN1)
QUICK = (ROCE, SWITCHTEC)
"""The setups of the short run."""


@dataclass(frozen=True)
class Ended:
    """What a command came to: its exit status, None when its time ran out, and what it printed."""

    status: int | None
    output: str

    @property
    def last_words(self) -> str:
        """The last line that says something."""
        lines = [line.strip() for line in self.output.splitlines() if re.search(r"\w", line)]
        return lines[-1] if lines else "no output"


@dataclass(frozen=True)
class Verdict:
    """One line of the table; `part` names a test within a program that reports many."""

    status: str
    reason: str = ""
    part: str = ""


Judge = Callable[[Ended], Sequence[Verdict]]
Steps = Callable[["Session"], Sequence[Verdict]]


@dataclass(frozen=True)
class Program:
    """One entry of a suite.

    Commands are shell lines in which `{server}`, `{client}` and `{server6}` stand for the guests'
    addresses, `{netdev}` for the network device, and `{g}` and `{x}` for the options `-g N` and
    `-x N` that choose a GID; on InfiniBand those are empty.
    """

    suite: str
    name: str
    client: str = ""
    """Runs in guest b once the server is ready; its output is judged."""
    server: str = ""
    """Runs in guest a; empty when the client needs no peer."""
    ready: str = ""
    """Shell condition in guest a that says the server is ready."""
    lasting: bool = False
    """The server would run for ever: it is ended after the client."""
    expect: str = ""
    """Regular expression that a passing client prints."""
    unsupported: str = ""
    """Regular expression of the line by which it says that the device lacks something."""
    repeat: str = ""
    """Regular expression of what either side prints when a run says nothing about the device: it is
    run again, twice at most."""
    judge: Judge | None = None
    """Verdicts over the client's end, instead of status and `expect`."""
    limit: float = 60.0
    """Seconds."""
    setups: tuple[Setup, ...] = (ROCE, INFINIBAND)
    brief: bool = False
    """Whether it takes seconds only; the soak draws from those (host_tools.soak.traffic)."""
    short: bool = False
    """Whether the short run has it too, under the setups of `QUICK`."""
    after: str = ""
    """Runs in both guests when the program has ended: puts back what it changed."""
    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Files that guest b gets first: path and content."""
    steps: Steps | None = field(default=None, repr=False)
    """What is done with both guests instead of all that. Raises `LabError` for a failure."""

    @property
    def key(self) -> str:
        """Its name in results, without the setup."""
        return f"{self.suite}/{self.name}"


def verdict(program: Program, client: Ended) -> Sequence[Verdict]:
    """What the client's end means."""
    if program.unsupported and (found := re.search(program.unsupported, client.output)):
        return [Verdict(SKIPPED, _line_of(client.output, found))]
    if program.judge is not None:
        return program.judge(client)
    if client.status is None:
        return [Verdict(FAILED, f"no end after {program.limit:.0f} s: {client.last_words}")]
    if client.status != 0:
        return [Verdict(FAILED, f"status {client.status}: {client.last_words}")]
    if program.expect and not re.search(program.expect, client.output, re.MULTILINE):
        return [Verdict(FAILED, f"printed no /{program.expect}/: {client.last_words}")]
    return [Verdict(PASSED)]


def _line_of(text: str, found: re.Match[str]) -> str:
    start = text.rfind("\n", 0, found.start()) + 1
    end = text.find("\n", found.end())
    return text[start : end if end >= 0 else None].strip()


IPERF_PORT = 5201


def listening(port: int) -> str:
    """Ready when something listens at the TCP port."""
    return f"ss -Hltn 'sport = :{port}' | grep -q ."


CM_LISTENING = "rdma resource show cm_id | grep -q LISTEN"
"""Ready when something listens through rdma_cm."""
