"""Who uses whom: an object that others refer to is not destroyed.

The rules are those of the objects' contexts: a queue pair names its domain, its completion queues
and its shared receive queue, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Status
from bluebridge.device.layout.mlx5.contexts import MKC, RQC, SQC, WQ, WQ_OFFSET
from bluebridge.device.layout.mlx5.objects import CONTEXT, ENTRY
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QPC, XRC_SRQC, Receives, Service
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.memory.regions import MemoryRegions

Object = tuple[str, int]
"""The kind of an object and its number."""
CQ, SRQ, PD, XRCD, QUEUE = "CQ", "SRQ", "PD", "XRC domain", "queue"
_KINDS: Final[dict[int, str]] = {
    **dict.fromkeys((Opcode.CREATE_QP, Opcode.CREATE_SQ, Opcode.CREATE_RQ), QUEUE),
    **dict.fromkeys((Opcode.DESTROY_QP, Opcode.DESTROY_SQ, Opcode.DESTROY_RQ), QUEUE),
    **dict.fromkeys((Opcode.CREATE_RMP, Opcode.CREATE_XRC_SRQ), SRQ),
    **dict.fromkeys((Opcode.DESTROY_RMP, Opcode.DESTROY_XRC_SRQ), SRQ),
    Opcode.DESTROY_CQ: CQ,
    Opcode.DEALLOC_PD: PD,
}
"""The kind of the object that a command makes or ends; queues of all kinds share their numbers."""


def _of_pair(data: bytes) -> list[Object]:
    def get(name: str) -> int:
        return QPC.get(data, name, QP_CONTEXT)

    found, kind = [(PD, get("pd"))], get("rq_type")
    if not get("no_sq"):
        found.append((CQ, get("cqn_send")))
    if kind != Receives.NONE:
        found.append((CQ, get("cqn_recv")))
    if kind == Receives.SHARED:
        found.append((SRQ, get("srqn")))
    if get("service") == Service.XRC and get("xrcd"):
        found.append((XRCD, get("xrcd")))
    return found


def _of_pool(data: bytes) -> list[Object]:
    return [(PD, WQ.get(data, "pd", CONTEXT + WQ_OFFSET))]


_USES: Final[dict[int, Callable[[bytes], list[Object]]]] = {
    Opcode.CREATE_QP: _of_pair,
    Opcode.CREATE_SQ: lambda data: [*_of_pool(data), (CQ, SQC.get(data, "cqn", CONTEXT))],
    Opcode.CREATE_RQ: lambda data: [*_of_pool(data), (CQ, RQC.get(data, "cqn", CONTEXT))],
    Opcode.CREATE_RMP: _of_pool,
    # Which keys a domain has now says `MemoryRegions`: work requests move them.
    Opcode.CREATE_MKEY: lambda data: [(PD, MKC.get(data, "pd", ENTRY))],
    Opcode.CREATE_XRC_SRQ: lambda data: [
        (PD, XRC_SRQC.get(data, "pd", ENTRY)),
        (CQ, XRC_SRQC.get(data, "cqn", ENTRY)),
    ],
}
"""What an object refers to, by the input of the command that makes it."""


def referred(data: bytes) -> list[Object]:
    """Return what the object that a command makes, by its input, refers to."""
    reader = _USES.get(INPUT.get(data, "opcode"))
    return [] if reader is None else reader(data)


class Uses:
    """The objects of one adapter that others refer to."""

    def __init__(self, regions: MemoryRegions) -> None:
        self._regions = regions
        self.clear()

    def clear(self) -> None:
        """Forget all objects."""
        self._of: dict[Object, list[Object]] = {}
        self._counts: Counter[Object] = Counter()

    def check(self, data: bytes) -> None:
        """Raise `Refused` (BAD_RES_STATE) for the end of an object that others refer to."""
        opcode = INPUT.get(data, "opcode")
        kind = _KINDS.get(opcode)
        if kind is None or opcode in _USES:
            return
        number = INPUT.get(data, "number")
        if count := self._counts[kind, number]:
            raise Refused(Status.BAD_RES_STATE, f"{count} objects use {kind} {number:#x}")
        if kind == PD and self._regions.in_domain(number):
            raise Refused(Status.BAD_RES_STATE, f"there are keys in PD {number:#x}")

    def note(self, data: bytes, output: bytes) -> None:
        """Note what a command that succeeded has made or ended."""
        opcode = INPUT.get(data, "opcode")
        kind = _KINDS.get(opcode)
        if kind is None:
            return
        reader = _USES.get(opcode)
        if reader is None:
            self._count(self._of.pop((kind, INPUT.get(data, "number")), ()), -1)
        else:
            used = self._of[kind, INPUT.get(output, "number")] = reader(data)
            self._count(used, 1)

    def _count(self, used: Iterable[Object], step: int) -> None:
        for each in used:
            self._counts[each] += step
            if not self._counts[each]:
                del self._counts[each]
