"""A message of the fabric as packets are made of it: the values of all headers, the payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.roce import ATOMICS, MTU_BYTES, Op

INFINIBAND: Final = 0
"""`WireMessage.form` of a message on InfiniBand, whose addresses are LIDs of two bytes."""

SOLICITED: Final = 1
RELIABLE: Final = 2
IMMEDIATE: Final = 4
"""Flag of a datagram that has an immediate value."""
READ: Final = 8
"""Flag of a response whose payload is the data of a read."""
ATOMIC: Final = 16
"""Flag of a response that brings the value an atomic found."""
XRC: Final = 32


@dataclass(slots=True)
class WireMessage:
    """One message; `payload` may be only its beginning, `length` is the whole in bytes.

    `what` is REQUEST, RESPONSE, DATAGRAM or FRAME, `flags` are the constants of this module.
    `address` is the remote address of a request or the value an atomic found. `key` is the R_Key of
    a request, the Q_Key of a datagram, the MSN of a response. `form` is the version of RoCE, or
    `INFINIBAND`; `udp_port` is the source port of version 2 if the sender has chosen one, else 0.
    """

    what: What
    length: int
    payload: bytes
    op: Op = Op.SEND
    flags: int = 0
    syndrome: int = 0
    source_qpn: int = 0
    target_qpn: int = 0
    psn: int = 0
    packets: int = 1
    address: int = 0
    key: int = 0
    immediate: int = 0
    srqn: int = 0
    atomic: tuple[int, ...] = (0, 0, 0, 0)
    source: bytes = b""
    destination: bytes = b""
    sgid: bytes = b""
    dgid: bytes = b""
    vlan: int = 0
    pkey: int = 0
    flow_label: int = 0
    traffic_class: int = 0
    hop_limit: int = 0
    service_level: int = 0
    form: int = 1
    udp_port: int = 0
    filled: bool = False
    """True if zeros stand where the payload is missing."""

    @property
    def complete(self) -> bool:
        """True unless bytes of the payload are missing; a request of a read or an atomic has none.

        The `length` of a read is that of its answer; an atomic carries nothing but its operands.
        """
        asks = self.what == What.REQUEST and (self.op == Op.READ or self.op in ATOMICS)
        return asks or len(self.payload) == self.length

    def fill(self) -> None:
        """Let zeros stand where the payload of an RDMA message is missing.

        Raises `PacketError` when so many bytes are no payload of so many packets.
        """
        if self.what != What.FRAME and not self.complete:
            if self.length > self.packets * max(MTU_BYTES.values()):
                raise PacketError(f"{self.length} bytes in {self.packets} packets")
            self.filled = True

    def part(self, offset: int, length: int) -> bytes:
        """Return bytes of the payload; zeros are made here, since a message may have 2 GiB."""
        found = self.payload[offset : offset + length]
        return found.ljust(length, b"\0") if self.filled else found


class PacketError(Exception):
    """A message cannot be carried by packets."""
