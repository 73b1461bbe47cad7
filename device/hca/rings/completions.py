"""Completions and asynchronous events of queue pairs (layouts: `device.layout.mlx4.cqe`, `eqe`)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.cqe import IS_SEND_BIT, OPCODE_ERROR
from bluebridge.device.layout.mlx4.eqe import DATA_SIZE

if TYPE_CHECKING:
    from bluebridge.device.hca.adapter import Adapter as Hca
    from bluebridge.device.hca.queue_pairs import QueuePair

_CQE = Struct(">III8xIH5xB")
_DATAGRAM_CQE = Struct(">IIIH6sIH5xB")
_FRAME_CQE = Struct(">II4xH2xHBBIHH3xB")
_ERROR_CQE = Struct(">I20xHBB3xB")

VLAN_PRESENT = 1 << 29
SERVICE_VLAN_PRESENT = 1 << 30
VENDOR_SYNDROME = 0x77


def _post(
    hca: Hca, qpn: int, cqn: int, cqe: bytes, solicited: bool = False, error: bool = False
) -> None:
    queue = hca.cqs.get(cqn)
    if queue is None:
        hca.bus.note(Kind.NOTE, f"QP {qpn:#x}: its CQ {cqn:#x} does not exist", obj=qpn)
    else:
        queue.post(cqe, solicited, error)


def complete_send(qp: QueuePair, index: int, opcode: int, length: int) -> None:
    """A successful send work request; `index` is its free-running number."""
    qp.hca.bus.concern(qp.qpn, index)
    cqe = _CQE.pack(qp.qpn, 0, 0, length, index & 0xFFFF, IS_SEND_BIT | opcode)
    _post(qp.hca, qp.qpn, qp.send_cqn, cqe)


def complete_receive(
    qp: QueuePair,
    index: int,
    opcode: int,
    length: int,
    immediate: int = 0,
    solicited: bool = False,
    *,
    cqn: int | None = None,
    source: int | None = None,
) -> None:
    """A receive of a connected queue pair; `immediate` may be an invalidated rkey.

    `cqn` and `source` (the peer's number) are the queue pair's own unless an XRC SRQ has others.
    """
    remote = qp.remote_qpn if source is None else source
    cqe = _CQE.pack(qp.qpn, immediate, remote, length, index & 0xFFFF, opcode)
    _post(qp.hca, qp.qpn, qp.recv_cqn if cqn is None else cqn, cqe, solicited)


def complete_datagram(
    qp: QueuePair,
    index: int,
    opcode: int,
    length: int,
    immediate: int,
    source: int,
    address: bytes,
    sl_vid: int,
    solicited: bool = False,
) -> None:
    """A datagram; `length` counts the 40 GRH bytes, `source` is the word with the sender's QPN.

    `address` is the sender's MAC address or LID: both stand at the same place.
    """
    vlan = VLAN_PRESENT if sl_vid & 0xFFF else 0
    cqe = _DATAGRAM_CQE.pack(
        vlan | qp.qpn, immediate, source, sl_vid, address, length, index & 0xFFFF, opcode
    )
    _post(qp.hca, qp.qpn, qp.recv_cqn, cqe, solicited)


def send_cqe(qp: QueuePair, index: int, opcode: int, length: int) -> bytes:
    """The entry `complete_send` would write, for engines that write many at once."""
    return _CQE.pack(qp.qpn, 0, 0, length, index & 0xFFFF, IS_SEND_BIT | opcode)


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


def post_many(hca: Hca, qpn: int, cqn: int, entries: list[bytes]) -> None:
    """Entries in order, with one event for all of them if one is due."""
    queue = hca.cqs.get(cqn)
    if queue is None:
        hca.bus.note(Kind.NOTE, f"QP {qpn:#x}: its CQ {cqn:#x} does not exist", obj=qpn)
    else:
        queue.post_many(entries)


def fail_send(qp: QueuePair, index: int, syndrome: int) -> None:
    """A send work request that failed or is flushed, whether it asked for a completion or not."""
    qp.hca.bus.concern(qp.qpn, index)
    cqe = _ERROR_CQE.pack(
        qp.qpn, index & 0xFFFF, VENDOR_SYNDROME, syndrome, IS_SEND_BIT | OPCODE_ERROR
    )
    _post(qp.hca, qp.qpn, qp.send_cqn, cqe, error=True)


def fail_receive(qp: QueuePair, index: int, syndrome: int, cqn: int | None = None) -> None:
    """A receive work request that failed or is flushed; `cqn` as in `complete_receive`."""
    cqe = _ERROR_CQE.pack(qp.qpn, index & 0xFFFF, VENDOR_SYNDROME, syndrome, OPCODE_ERROR)
    _post(qp.hca, qp.qpn, qp.recv_cqn if cqn is None else cqn, cqe, error=True)


def post_event(hca: Hca, event: int, number: int) -> None:
    """An asynchronous event about queue pair or SRQ `number`."""
    hca.eqs.post_async(event, number.to_bytes(4, "big").ljust(DATA_SIZE, b"\0"))
