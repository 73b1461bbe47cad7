"""Opcodes and flags as posting needs them, and the entries of QP1 (ib/qp.c: build_mlx_header)."""

from __future__ import annotations

from typing import Final

from bluebridge.device.layout.mlx4.wqe import (
    CQE_REQUEST,
    FENCE,
    FORCE_LOOPBACK,
    OWNER,
    SOLICITED,
    STRONG_ORDER,
)
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
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.drivers.hca.posting import wqe
from bluebridge.guest.drivers.hca.posting.wqe import Builder, write_data, write_inline
from bluebridge.guest.errors import VerbsError
from bluebridge.guest.verbs.enums import QpType, SendFlags, WrOpcode
from bluebridge.guest.verbs.interface import EthernetPort
from bluebridge.guest.verbs.values import RoceAddress, SendWr

DEFAULT_PKEY = 0xFFFF
_PSN_MASK = 0xFFFFFF

INVALID = swap32(OWNER)  # what every slot holds before its first use
_BUILDERS = {QpType.RC: wqe.CONNECTED, QpType.UC: wqe.UNRELIABLE, QpType.RAW_ETH: wqe.RAW}
"""The builders of opcodes that need no more than the entry."""
# Bytes before the data segments; the inline headers and the ICRC of QP1 included.
OVERHEAD = {QpType.RC: 64, QpType.UC: 64, QpType.UD: 64, QpType.GSI: 128, QpType.RAW_ETH: 16}
# What the last dword of the control segment holds.
NOTHING: Final = 0
IMMEDIATE: Final = 1
RKEY: Final = 2
_LAST_WORD: dict[int, int] = {
    WrOpcode.SEND_WITH_IMM: IMMEDIATE,
    WrOpcode.RDMA_WRITE_WITH_IMM: IMMEDIATE,
    WrOpcode.SEND_WITH_INV: RKEY,
}
_STRONG = frozenset((WrOpcode.REG_MR, WrOpcode.LOCAL_INV))


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
    if not isinstance(wr.address_vector, RoceAddress):
        raise VerbsError("a management datagram needs an address handle")
    return wr.address_vector


class Operation:
    """One opcode of verbs in the form that posting needs.

    `valid0` and `valid1` are the first dword of the entry, which makes it valid, for both values of
    the ownership bit, in the byte order of memory. `flags` is the third dword, `last_kind` says
    what the last one holds.
    """

    __slots__ = ("builder", "flags", "last_kind", "valid0", "valid1")

    def __init__(self, builder: wqe.Builder, code: int, flags: int, last_kind: int) -> None:
        self.builder = builder
        self.valid0, self.valid1 = swap32(code), swap32(code | OWNER)
        self.flags = flags
        self.last_kind = last_kind


def _flag_words() -> tuple[tuple[int, int], ...]:
    """Return size and flag bits for each combination of SendFlags: one lookup per work request."""
    words = []
    for flags in range(16):
        word = CQE_REQUEST if flags & SendFlags.SIGNALED else 0
        word |= SOLICITED if flags & SendFlags.SOLICITED else 0
        words.append((FENCE if flags & SendFlags.FENCE else 0, word))
    return tuple(words)


FLAGS = _flag_words()


def builders_of(
    kind: QpType, pdn: int, port: int, gsi: GsiPosting | None
) -> dict[int, wqe.Builder]:
    """Return the builders by opcode for a queue pair of domain `pdn` on `port`.

    `gsi` is given for QP1 only.
    """
    if gsi is not None:
        return gsi.builders
    return wqe.datagram(pdn, port) if kind is QpType.UD else _BUILDERS[kind]


def operations(
    kind: QpType, builders: dict[int, wqe.Builder], signal_all: bool
) -> dict[int, Operation]:
    """Return the `Operation` of each opcode that a queue pair of this kind takes."""
    always = CQE_REQUEST if signal_all else 0
    if kind is QpType.RAW_ETH:
        always |= SOLICITED  # of Ethernet frames: no ICRC at the end
    table: dict[int, Operation] = {}
    for opcode, builder in builders.items():
        code = wqe.OPCODES[opcode]
        last = _LAST_WORD.get(opcode, NOTHING)
        flags = always | (STRONG_ORDER if opcode in _STRONG else 0)
        table[opcode] = Operation(builder, int(code), flags, last)
    return table
