"""Completions and asynchronous events of queue pairs (layouts: `device.layout.mlx4.cqe`, `eqe`)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.cqe import IS_SEND_BIT, OPCODE_ERROR
from bluebridge.device.mlx4.rings.completion_queues import CompletionQueues
from bluebridge.device.mlx4.rings.event_queues import EventQueues
from bluebridge.device.pci.bus import HostBus

_CQE: Final = Struct(">III8xIH5xB")
_DATAGRAM_CQE: Final = Struct(">IIIH6sIHH3xB")
_FRAME_CQE: Final = Struct(">II4xH2xHBBIHH3xB")
_ERROR_CQE: Final = Struct(">I20xHBB3xB")

VLAN_PRESENT: Final = 1 << 29
SERVICE_VLAN_PRESENT: Final = 1 << 30
VENDOR_SYNDROME: Final = 0x77


class Completions:
    """Writes the completions and the asynchronous events of one queue pair.

    `send_cqn` and `recv_cqn` are the numbers of its completion queues; one that does not exist
    when a completion is due costs a line in the log. One that takes no entry any more calls
    `lost`, later, in the server's loop.
    """

    __slots__ = ("_bus", "_cqs", "_eqs", "_losing", "_qpn", "_recv_cqn", "_send_cqn", "lost")

    lost: Callable[[], None]

    def __init__(
        self,
        bus: HostBus,
        cqs: CompletionQueues,
        eqs: EventQueues,
        qpn: int,
        send_cqn: int,
        recv_cqn: int,
    ) -> None:
        self._bus = bus
        self._cqs = cqs
        self._eqs = eqs
        self._qpn = qpn
        self._send_cqn = send_cqn
        self._recv_cqn = recv_cqn
        self._losing = False

    # -- sends --------------------------------------------------------------------------------

    def complete_send(self, index: int, opcode: int, length: int) -> None:
        """A successful send work request; `index` is its free-running number."""
        self._bus.concern(self._qpn, index)
        cqe = _CQE.pack(self._qpn, 0, 0, length, index & 0xFFFF, IS_SEND_BIT | opcode)
        self._post(self._send_cqn, cqe)

    def fail_send(self, index: int, status: int) -> None:
        """A send work request that failed or is flushed; also one that is not signalled."""
        self._bus.concern(self._qpn, index)
        self._post(self._send_cqn, self._error(index, status, IS_SEND_BIT), error=True)

    def post_sends(self, entries: list[bytes]) -> None:
        """Entries of `send_cqe` in order, with one event for all of them if one is due."""
        self._post_many(self._send_cqn, entries)

    # -- receives -----------------------------------------------------------------------------

    def complete_receive(
        self,
        index: int,
        opcode: int,
        length: int,
        source: int,
        immediate: int = 0,
        solicited: bool = False,
        cqn: int | None = None,
    ) -> None:
        """A receive of a connected queue pair; `immediate` may be an invalidated rkey.

        `source` is the peer's number, or that of the XRC SRQ whose completion queue is `cqn`.
        """
        cqe = _CQE.pack(self._qpn, immediate, source, length, index & 0xFFFF, opcode)
        self._post(self._recv_cqn if cqn is None else cqn, cqe, solicited)

    def complete_datagram(
        self,
        index: int,
        opcode: int,
        length: int,
        immediate: int,
        source: int,
        address: bytes,
        sl_vid: int,
        solicited: bool = False,
        checksum: int = 0,
    ) -> None:
        """A datagram; `length` counts the 40 GRH bytes, `source` is the word with the sender's QPN.

        `address` is the sender's MAC address, or its LID with what was found in a packet of IPoIB:
        both stand at the same place. `checksum` is that packet's, as `frame_cqe` has it.
        """
        vlan = VLAN_PRESENT if sl_vid & 0xFFF else 0
        cqe = _DATAGRAM_CQE.pack(
            vlan | self._qpn,
            immediate,
            source,
            sl_vid,
            address,
            length,
            index & 0xFFFF,
            checksum,
            opcode,
        )
        self._post(self._recv_cqn, cqe, solicited)

    def fail_receive(self, index: int, status: int, cqn: int | None = None) -> None:
        """A receive work request that failed or is flushed; `cqn` as in `complete_receive`."""
        self._post(self._recv_cqn if cqn is None else cqn, self._error(index, status), error=True)

    def post_receives(self, entries: list[bytes]) -> None:
        """Entries of `frame_cqe` in order, with one event for all of them if one is due."""
        self._post_many(self._recv_cqn, entries)

    # -- both ---------------------------------------------------------------------------------

    def event(self, event: int) -> None:
        """An asynchronous event about the queue pair."""
        self._eqs.post_numbered(event, self._qpn)

    def _error(self, index: int, status: int, side: int = 0) -> bytes:
        return _ERROR_CQE.pack(
            self._qpn, index & 0xFFFF, VENDOR_SYNDROME, status, side | OPCODE_ERROR
        )

    def _post(self, cqn: int, cqe: bytes, solicited: bool = False, error: bool = False) -> None:
        queue = self._cqs.get(cqn)
        if queue is None:
            self._absent(cqn)
        else:
            queue.post(cqe, solicited, error)
            if queue.broken:
                self._lose()

    def _post_many(self, cqn: int, entries: list[bytes]) -> None:
        queue = self._cqs.get(cqn)
        if queue is None:
            self._absent(cqn)
        else:
            queue.post_many(entries)
            if queue.broken:
                self._lose()

    def _lose(self) -> None:
        """The engines are in the middle of something: the queue pair hears of it afterwards."""
        if not self._losing:
            self._losing = True
            self._bus.call_soon(self._tell_loss)

    def _tell_loss(self) -> None:
        self._losing = False
        self.lost()

    def _absent(self, cqn: int) -> None:
        text = f"QP {self._qpn:#x}: its CQ {cqn:#x} does not exist"
        self._bus.note(Kind.NOTE, text, obj=self._qpn)


def send_cqe(qpn: int, index: int, opcode: int, length: int) -> bytes:
    """The entry of a successful send work request, for engines that write many at once."""
    return _CQE.pack(qpn, 0, 0, length, index & 0xFFFF, IS_SEND_BIT | opcode)


def frame_cqe(
    qpn: int,
    index: int,
    length: int,
    vlan: tuple[int, int],
    status: int,
    verdict: tuple[int, int],
    rss_hash: int,
) -> bytes:
    """The entry of an Ethernet frame of `length` bytes.

    `vlan` are the bit that says which kind of tag was stripped, 0 for none, and the tag; `status`
    are `FrameStatus` bits, `verdict` the byte and the checksum that tell of the L4 checksum.
    """
    present, tag = vlan
    checked, checksum = verdict
    return _FRAME_CQE.pack(
        present | qpn, rss_hash, tag, status, 0, checked, length, index & 0xFFFF, checksum, 1
    )
