"""Values for the parameters of a fault: queues of the running program, and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.mlx4.faults import Effect, NamedFault
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm

QUEUES = ("qpn", "cqn", "srqn")
EXAMPLES = {
    "opcode": "SW2HW_MPT", "status": "BAD_RES_STATE", "event": "COMP", "ms": "300", "times": "2",
    "index": "0", "field": "link_up", "value": "0",
}  # fmt: skip
"""The values of parameters that say no number of something in the adapter."""
OWN = {"command-wrong": {"opcode": "QUERY_PORT"}, "slow-drain": {"ms": "2"}}
"""The values of faults for which those of `EXAMPLES` are not right."""
BEFORE = frozenset(
    (
        Effect.COMMAND_FAILS, Effect.COMMAND_LATE, Effect.COMMAND_NEVER, Effect.COMMAND_WRONG,
        Effect.WIRE,
    )
)  # fmt: skip
"""Faults that wait for what a program does by itself, so that they are armed before it starts."""
_VECTOR = re.compile(r"^ *\d+: +([\d ]+?) +\S.*mlx4-(\d+)@", re.M)


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
    for name in fault.needs:
        if name in QUEUES:
            number = _queue(name, qpn, tell)
            if number is None:
                return None
            given[name] = hex(number)
        elif name == "address":
            given[name] = hex(_payload(pair.logs))
        elif name == "key":
            given[name] = hex(json.loads(tell("show a mr")[-1])["lkey"])
        elif name == "vector":
            given[name] = str(_busiest_vector(guest))
        else:
            given[name] = EXAMPLES[name]
    return given | OWN.get(fault.name, {})


def _queue(name: str, qpn: int | None, tell: Callable[[str], list[str]]) -> int | None:
    """Return the number of a queue that belongs to a queue pair, which may be the pair itself."""
    if qpn is None or name == "qpn":
        return qpn
    context = bytes.fromhex(json.loads(tell(f"show a qp {qpn}")[1])["context"])
    if name == "cqn":
        return QPC.get(context, "cqn_send")
    return QPC.get(context, "srqn") if QPC.get(context, "use_srq") else None


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
    counts = [(sum(map(int, row[0].split())), int(row[1])) for row in _VECTOR.findall(text)]
    return max(counts, default=(0, 0))[1]
