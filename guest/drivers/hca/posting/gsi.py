"""QP1: management datagrams whose headers the driver writes (ib/qp.c: build_mlx_header)."""

from __future__ import annotations

from bluebridge.device.layout.mlx4.wqe import FORCE_LOOPBACK
from bluebridge.device.layout.net.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_ROCE,
)
from bluebridge.device.layout.net.ip import (
    FIRST_SOURCE_PORT,
    IPV4,
    IPV4_MAPPED,
    PROTOCOL_UDP,
    ROCE_PORT,
    ROCE_V2,
    UDP,
    ones_complement_sum,
)
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
from bluebridge.guest.verbs.values import RoceAddress, SendWr

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
        network = self._network(to, BTH_SIZE + DETH_SIZE + length + pad + ICRC_SIZE)
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
        return network + bytes(bth + deth)

    def _network(self, to: RoceAddress, length: int) -> bytes:
        """Return the Ethernet header and what follows it up to the BTH, with `length` bytes to go.

        RoCE v1: a GRH. RoCE v2: an IP header and a UDP header.
        """
        sgid = self._port.gids[to.sgid_index]
        if self._port.roce_version(to.sgid_index) != ROCE_V2:
            return self._ethernet(to, ETHERTYPE_ROCE) + _grh(to, sgid, length, GRH_NEXT_BTH)
        length += UDP.size
        udp = UDP.pack(source_port=FIRST_SOURCE_PORT, destination_port=ROCE_PORT, length=length)
        if not sgid.startswith(IPV4_MAPPED):
            ip = _grh(to, sgid, length, PROTOCOL_UDP)
            return self._ethernet(to, ETHERTYPE_IPV6) + ip + udp
        return self._ethernet(to, ETHERTYPE_IPV4) + _ipv4(to, sgid, length) + udp

    def _ethernet(self, to: RoceAddress, ethertype: int) -> bytes:
        return bytes(ETHERNET.pack(dmac=to.dmac, smac=self._port.mac, ethertype=ethertype))


def _grh(to: RoceAddress, sgid: bytes, length: int, following: int) -> bytes:
    """Return a GRH, or an IPv6 header, which has the same fields."""
    header = GRH.pack(
        version=6,
        traffic_class=to.traffic_class,
        flow_label=to.flow_label,
        payload_length=length,
        next_header=following,
        hop_limit=to.hop_limit,
        sgid=sgid,
        dgid=to.dgid,
    )
    return bytes(header)


def _ipv4(to: RoceAddress, sgid: bytes, length: int) -> bytes:
    header = IPV4.pack(
        version=4,
        header_words=IPV4.size // 4,
        tos=to.traffic_class,
        total_length=IPV4.size + length,
        dont_fragment=1,
        ttl=to.hop_limit,
        protocol=PROTOCOL_UDP,
        source=sgid[len(IPV4_MAPPED) :],
        destination=to.dgid[len(IPV4_MAPPED) :],
    )
    IPV4.set(header, "checksum", ones_complement_sum(bytes(header)))
    return bytes(header)


def _address(wr: SendWr) -> RoceAddress:
    """Return the destination of a request; raises `VerbsError` when it has none."""
    if not isinstance(wr.address_vector, RoceAddress):
        raise VerbsError("a management datagram needs an address handle")
    return wr.address_vector
