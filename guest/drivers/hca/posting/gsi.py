"""QP1: management datagrams whose headers the driver writes (ib/qp.c: build_mlx_header)."""

from __future__ import annotations

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
from bluebridge.guest.drivers.hca.posting.wqe import Builder, write_data, write_inline
from bluebridge.guest.verbs.enums import SendFlags, WrOpcode
from bluebridge.guest.verbs.errors import VerbsError
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.requests import SendWr
from bluebridge.guest.verbs.roce import RoceAddress

DEFAULT_PKEY = 0xFFFF
_PSN_MASK = 0xFFFFFF


class GsiPosting:
    """Builds the entries of queue pair 1 of `port`, and counts its packets."""

    def __init__(self, port: EthernetPort) -> None:
        self._port = port
        self._psn = 0
        self.builders: dict[int, Builder] = {WrOpcode.SEND: Builder(self._send)}

    def control_words(self, wr: SendWr) -> tuple[int, int]:
        """Return the two dwords with the peer's MAC; for the port's own, with the loopback flag."""
        dmac = _address(wr).dmac
        loopback = FORCE_LOOPBACK if dmac == self._port.mac else 0
        return int.from_bytes(dmac[:2], "big") << 16 | loopback, int.from_bytes(dmac[2:], "big")

    def _send(self, wr: SendWr, data: memoryview, offset: int) -> int:
        offset = write_inline(data, offset, self._headers(wr))
        offset = write_data(wr, data, offset)
        return write_inline(data, offset, bytes(ICRC_SIZE))  # the device fills the ICRC in

    def _headers(self, wr: SendWr) -> bytes:
        to = _address(wr)
        length = sum(piece[1] for piece in wr.sg_list)
        if wr.inline_data is not None:
            length = len(wr.inline_data)
        pad = -length & 3
        ethernet = ETHERNET.pack(dmac=to.dmac, smac=self._port.mac, ethertype=ETHERTYPE_ROCE)
        grh = GRH.pack(
            version=6,
            traffic_class=to.traffic_class,
            flow_label=to.flow_label,
            payload_length=BTH_SIZE + DETH_SIZE + length + pad + ICRC_SIZE,
            next_header=GRH_NEXT_BTH,
            hop_limit=to.hop_limit,
            sgid=self._port.gids[to.sgid_index],
            dgid=to.dgid,
        )
        self._psn = (self._psn + 1) & _PSN_MASK
        bth = BTH.pack(
            opcode=BthOpcode.UD_SEND_ONLY,
            solicited=int(bool(wr.send_flags & SendFlags.SOLICITED)),
            migrated=1,
            pad=pad,
            pkey=DEFAULT_PKEY,
            dest_qpn=wr.remote_qpn,
            psn=self._psn,
        )
        deth = DETH.pack(qkey=wr.remote_qkey, source_qpn=GSI_QPN)
        return bytes(ethernet + grh + bth + deth)


def _address(wr: SendWr) -> RoceAddress:
    """Return the destination of a request; raises `VerbsError` when it has none."""
    if not isinstance(wr.address_vector, RoceAddress):
        raise VerbsError("a management datagram needs an address handle")
    return wr.address_vector
