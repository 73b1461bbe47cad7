"""QP1: management datagrams whose headers the driver writes (ib/qp.c: build_mlx_header)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.device.layout.mlx4.wqe import FORCE_LOOPBACK
from bluebridge.device.layout.net.ethernet import ETHERNET, ETHERTYPE_ROCE
from bluebridge.device.layout.net.roce import (
    BTH,
    BTH_SIZE,
    DETH,
    DETH_SIZE,
    GRH,
    GRH_NEXT_BTH,
    GSI_QPN,
    ICRC_SIZE,
    BthOpcode,
)
from bluebridge.guest.hca.errors import VerbsError
from bluebridge.guest.hca.posting.wqe import Builder, write_data, write_inline
from bluebridge.guest.verbs.enums import SendFlags, WrOpcode
from bluebridge.guest.verbs.values import SendWr

if TYPE_CHECKING:
    from bluebridge.guest.hca.queues.qp import Qp

DEFAULT_PKEY = 0xFFFF


def _send(qp: Qp, wr: SendWr, data: memoryview, offset: int) -> int:
    offset = write_inline(data, offset, _headers(qp, wr))
    offset = write_data(data, offset, wr)
    return write_inline(data, offset, bytes(ICRC_SIZE))  # the device fills the ICRC in


def _headers(qp: Qp, wr: SendWr) -> bytes:
    ah = wr.ah
    if ah is None:
        raise VerbsError("a management datagram needs an address handle")
    length = sum(piece[1] for piece in wr.sg_list)
    if wr.inline_data is not None:
        length = len(wr.inline_data)
    pad = -length & 3
    ethernet = ETHERNET.pack(dmac=ah.dmac, smac=qp.ctx.mac, ethertype=ETHERTYPE_ROCE)
    grh = GRH.pack(
        version=6,
        traffic_class=ah.traffic_class,
        flow_label=ah.flow_label,
        payload_length=BTH_SIZE + DETH_SIZE + length + pad + ICRC_SIZE,
        next_header=GRH_NEXT_BTH,
        hop_limit=ah.hop_limit,
        sgid=qp.ctx.gids[ah.sgid_index],
        dgid=ah.dgid,
    )
    bth = BTH.pack(
        opcode=BthOpcode.UD_SEND_ONLY,
        solicited=int(bool(wr.send_flags & SendFlags.SOLICITED)),
        migrated=1,
        pad=pad,
        pkey=DEFAULT_PKEY,
        dest_qpn=wr.remote_qpn,
        psn=qp.next_psn(),
    )
    deth = DETH.pack(qkey=wr.remote_qkey, source_qpn=GSI_QPN)
    return bytes(ethernet + grh + bth + deth)


def control_words(qp: Qp, wr: SendWr) -> tuple[int, int]:
    """What dwords 2 and 3 of the control segment carry besides the flags: the peer's MAC."""
    assert wr.ah is not None
    dmac = wr.ah.dmac
    loopback = FORCE_LOOPBACK if dmac == qp.ctx.mac else 0
    return int.from_bytes(dmac[:2], "big") << 16 | loopback, int.from_bytes(dmac[2:], "big")


BUILDERS: dict[int, Builder] = {WrOpcode.SEND: _send}
