"""Values for the parameters of a fault: queues of the running program, and examples."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from bluebridge.device.layout.mlx4.contexts import QPC
from bluebridge.device.layout.mlx4.faults import Effect, NamedFault
from bluebridge.host_tools.machine.vm import Vm

QUEUES = ("qpn", "cqn", "srqn")
EXAMPLES = {
    "opcode": "SW2HW_MPT", "status": "BAD_RES_STATE", "event": "COMP", "ms": "300", "times": "2"
}  # fmt: skip
"""The values of parameters that say no number of something in the adapter."""
_BEFORE = frozenset((Effect.COMMAND_FAILS, Effect.COMMAND_LATE, Effect.COMMAND_NEVER))
_VECTOR = re.compile(r"^ *\d+: +([\d ]+?) +\S.*mlx4-(\d+)@", re.M)


def is_before(fault: NamedFault) -> bool:
    """Whether a fault is armed before the program starts, and not while it runs."""
    return fault.effect in _BEFORE


def queue_pair(guest: Vm, owner: str) -> int | None:
    """Return the newest connected queue pair of a program in a guest; None if there is none."""
    text = guest.run("rdma -j resource show qp", check=False).text
    found = [
        each["lqpn"]
        for each in (json.loads(text) if text.strip() else [])
        if each.get("comm") == owner and each.get("state") == "RTS" and each.get("type") != "UD"
    ]
    return max(found, default=None)


def values(
    fault: NamedFault, guest: Vm, qpn: int | None, tell: Callable[[str], list[str]]
) -> dict[str, str] | None:
    """Return values for what a fault needs; None if the program has no such queue."""
    given: dict[str, str] = {}
    for name in fault.needs:
        if name in QUEUES:
            number = _queue(name, qpn, tell)
            if number is None:
                return None
            given[name] = hex(number)
        elif name == "vector":
            given[name] = str(_busiest_vector(guest))
        else:
            given[name] = EXAMPLES[name]
    return given


def _queue(name: str, qpn: int | None, tell: Callable[[str], list[str]]) -> int | None:
    """Return the number of a queue that belongs to a queue pair, which may be the pair itself."""
    if qpn is None or name == "qpn":
        return qpn
    context = bytes.fromhex(json.loads(tell(f"show a qp {qpn}")[1])["context"])
    if name == "cqn":
        return QPC.get(context, "cqn_send")
    return QPC.get(context, "srqn") if QPC.get(context, "use_srq") else None


def _busiest_vector(guest: Vm) -> int:
    """Return the vector of completions that brought most interrupts."""
    text = guest.run("cat /proc/interrupts").text
    counts = [(sum(map(int, row[0].split())), int(row[1])) for row in _VECTOR.findall(text)]
    return max(counts, default=(0, 0))[1]
