"""Page faults: absent pages that queue pairs wait for, until software says that they are there.

Linux `ib/odp.c: mlx5_ib_eq_pf_process, mlx5_ib_page_fault_resume`. A queue pair has one for its
requests and one for those of its peer at most. It ends with PAGE_FAULT_RESUME or with the queue
pair: in ERR, too, software answers it.
"""

from __future__ import annotations

from enum import Enum
from time import monotonic_ns
from typing import Final, NamedTuple

from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.event_queues import (
    DATA_BYTES,
    DATA_OFFSET,
    RDMA_FAULT_EQE,
    WQE_FAULT_EQE,
    EventType,
    FaultSubtype,
)
from bluebridge.device.layout.mlx5.page_faults import (
    PAGE_FAULT_RESUME,
    RDMA_FAULT,
    RDMA_WRITES,
    WqeFault,
)
from bluebridge.device.mlx5.rings.event_queues import EventQueues
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.pci.bus import HostBus
from bluebridge.device.rdma.pairs.paging import Paging
from bluebridge.device.rdma.pairs.queue_pair import QueuePair

TOKEN_MASK: Final = (1 << 24) - 1
MOST_LENGTH: Final = 0xFFFF
COUNTER_MASK: Final = 0xFFFF
NS_PER_US: Final = 1000


class Side(Enum):
    """Whose operation waits: a queue pair's own, or that of its peer."""

    REQUESTER = "requester"
    RESPONDER = "responder"


class Wanted(NamedTuple):
    """The content of a page fault: the values of `layout` that are not the event's own.

    `queue` is what PAGE_FAULT_RESUME repeats, -1 for the token. `bytes` are wanted of `place`.
    """

    layout: Struct
    sub_type: FaultSubtype
    fault: int
    queue: int
    values: dict[str, int]
    what: str
    place: int
    bytes: int


class Fault:
    """A page fault that software has not answered."""

    def __init__(self, pair: QueuePair, side: Side, wanted: Wanted) -> None:
        self.pair = pair
        self.side = side
        self.wanted = wanted
        self.since = monotonic_ns()


class PageFaults:
    """The page faults of one adapter, by their tokens."""

    def __init__(self, bus: HostBus, eqs: EventQueues) -> None:
        self._bus = bus
        self._eqs = eqs
        self._open: dict[int, Fault] = {}
        self._of_pairs: dict[int, dict[Side, int]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._open)

    def reset(self) -> None:
        """Forget all page faults."""
        self._open.clear()
        self._of_pairs.clear()

    def of_pair(self, qpn: int) -> list[str]:
        """Return what a queue pair waits for, in words."""
        tokens = self._of_pairs.get(qpn, {}).values()
        return [f"{self._open[token].wanted.what} ({token:#x})" for token in tokens]

    def ask(self, pair: QueuePair, side: Side, wanted: Wanted) -> bool:
        """Return whether pages are awaited; tell software what is wanted, unless it was told.

        Without an event queue for page faults nobody would answer.
        """
        tokens = self._of_pairs.get(pair.qpn, {})
        if side in tokens:
            return True
        if not self._eqs.takes(EventType.PAGE_FAULT):
            return False
        token = self._token()
        self._of_pairs[pair.qpn] = {**tokens, side: token}
        self._open[token] = Fault(pair, side, wanted)
        event = wanted.layout.pack(wanted.values, fault=wanted.fault, token=token)
        data = bytes(event[DATA_OFFSET : DATA_OFFSET + DATA_BYTES])
        self._eqs.post_async(EventType.PAGE_FAULT, data, wanted.sub_type)
        return True

    def _token(self) -> int:
        token = self._last
        while True:
            token = (token + 1) & TOKEN_MASK
            if token not in self._open:
                self._last = token
                return token

    def resume(self, data: bytes) -> None:
        """Go on after PAGE_FAULT_RESUME; raises `Refused` (BAD_PARAM) unless it names a fault."""
        get = PAGE_FAULT_RESUME.get
        token, queue = get(data, "token"), get(data, "queue")
        fault = self._open.get(token)
        if fault is None:
            raise Refused(Status.BAD_PARAM, f"no page fault has token {token:#x}")
        wanted = fault.wanted
        repeated = token if wanted.queue < 0 else wanted.queue
        if get(data, "fault") != wanted.fault or queue != repeated:
            raise Refused(Status.BAD_PARAM, f"page fault {token:#x} is of another queue or type")
        failed, pair = bool(get(data, "error")), fault.pair
        self._end(token, "failed" if failed else "OK")
        if fault.side is Side.REQUESTER:
            pair.engine.resume(failed=failed)
        else:
            pair.responder.resume(failed=failed)

    def forget(self, qpn: int) -> None:
        """Forget the page faults of a queue pair that is in RST or gone."""
        for token in list(self._of_pairs.get(qpn, {}).values()):
            self._end(token, "given up")

    def _end(self, token: int, outcome: str) -> None:
        fault = self._open.pop(token)
        qpn, wanted = fault.pair.qpn, fault.wanted
        tokens = self._of_pairs[qpn]
        del tokens[fault.side]
        if not tokens:
            del self._of_pairs[qpn]
        self._bus.tell(
            Fact.PAGE_FAULT,
            qpn=qpn,
            fault=token,
            what=wanted.what,
            address=wanted.place,
            bytes=wanted.bytes,
            status=outcome,
            us=(monotonic_ns() - fault.since) // NS_PER_US,
        )


class PairPaging(Paging):
    """The page faults of one queue pair."""

    def __init__(self, faults: PageFaults, pair: QueuePair) -> None:
        self._faults = faults
        self._pair = pair

    def for_send(self, index: int, *, brings: bool, done: int) -> bool:
        kind = WqeFault.READ if brings else WqeFault.SEND
        return self._ask_for_entry(Side.REQUESTER, kind, self._pair.qpn, index, 0, done)

    def for_receive(self, index: int, srqn: int, length: int, done: int) -> bool:
        kind, queue = (WqeFault.RECEIVE, self._pair.qpn) if srqn < 0 else (WqeFault.SRQ, srqn)
        return self._ask_for_entry(Side.RESPONDER, kind, queue, index, length, done)

    def _ask_for_entry(
        self, side: Side, kind: WqeFault, queue: int, index: int, length: int, done: int
    ) -> bool:
        index &= COUNTER_MASK
        values = {
            "committed": done, "wqe_index": index, "queue": queue,
            "packet_length": min(length, MOST_LENGTH),
        }  # fmt: skip
        wanted = Wanted(
            WQE_FAULT_EQE, FaultSubtype.WQE, kind, queue, values, f"{kind.name} WQE", index, length
        )
        return self._faults.ask(self._pair, side, wanted)

    def for_peer(self, key: int, address: int, length: int, *, changes: bool) -> bool:
        values = {
            "rkey": key, "va": address, "length": length,
            "packet_length": min(length, MOST_LENGTH),
        }  # fmt: skip
        kind = RDMA_FAULT | RDMA_WRITES * changes
        what = f"{'write' if changes else 'read'} by key {key:#x}"
        wanted = Wanted(RDMA_FAULT_EQE, FaultSubtype.RDMA, kind, -1, values, what, address, length)
        return self._faults.ask(self._pair, Side.RESPONDER, wanted)
