"""A VXLAN tunnel endpoint without its socket: frames to datagrams for peers, and back.

Who is behind which peer is learned from the source addresses of frames. What is for nobody known
goes to every peer. A frame of a peer is never for another peer: so labs that are joined make no
loop, whatever is joined to what.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from bluebridge.device.fabric.addresses import is_group
from bluebridge.device.layout.net.ethernet import HEADER_SIZE
from bluebridge.device.layout.net.vxlan import VNI_VALID, VXLAN

MAC_SIZE: Final = 6
LONGEST: Final = 9600
"""Most bytes of a frame: those of the adapter's largest MTU, with room for tags."""
MOST_LEARNED: Final = 256
"""Most addresses that are known at a time, those of all peers together."""
AGE_SECONDS: Final = 300.0
"""Seconds after which an address that sent nothing is forgotten, as in Linux."""


class Refusal(StrEnum):
    """Why a datagram was dropped."""

    STRANGER = "unknown host"
    SHORT = "truncated"
    LONG = "too long"
    FORM = "no VXLAN"
    NETWORK = "other network"
    SOURCE = "no source"


class Endpoint(NamedTuple):
    """An address of UDP: a numeric host, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Learned(NamedTuple):
    peer: Endpoint
    seconds: float


class Tunnel:
    """The tunnel of the network `vni` to `peers`; times are those of any steady clock.

    `refused` counts dropped datagrams by reason.
    """

    def __init__(self, vni: int, peers: Sequence[Endpoint]) -> None:
        self.peers = tuple(peers)
        self.header: Final = bytes(VXLAN.pack(flags=VNI_VALID, vni=vni))
        self.refused = dict.fromkeys(Refusal, 0)
        self._by_host = {peer.host: peer for peer in reversed(self.peers)}
        self._known = frozenset(self.peers)
        self._learned: OrderedDict[bytes, _Learned] = OrderedDict()
        """Addresses and the peers they are behind, the one that was quiet longest first."""

    def peer(self, source: Endpoint) -> Endpoint | None:
        """Return the peer that a datagram comes from; None, counted, for a stranger.

        A peer may send from any port, as Linux does.
        """
        if source in self._known:
            return source
        found = self._by_host.get(source.host)
        if found is None:
            self.refused[Refusal.STRANGER] += 1
        return found

    def read(self, peer: Endpoint, datagram: bytes, now: float) -> bytes | None:
        """Return the frame in a datagram of a peer; None, counted, for anything else."""
        why = self._objection(datagram)
        if why is not None:
            self.refused[why] += 1
            return None
        frame = datagram[VXLAN.size :]
        source = frame[MAC_SIZE : 2 * MAC_SIZE]
        self._learned[source] = _Learned(peer, now)
        self._learned.move_to_end(source)
        if len(self._learned) > MOST_LEARNED:
            self._learned.popitem(last=False)
        return frame

    def _objection(self, datagram: bytes) -> Refusal | None:
        if len(datagram) < VXLAN.size + HEADER_SIZE:
            return Refusal.SHORT
        if len(datagram) > VXLAN.size + LONGEST:
            return Refusal.LONG
        if datagram[0] != VNI_VALID:
            return Refusal.FORM
        if datagram[4:7] != self.header[4:7]:
            return Refusal.NETWORK
        source = datagram[VXLAN.size + MAC_SIZE : VXLAN.size + 2 * MAC_SIZE]
        return Refusal.SOURCE if is_group(source) or not any(source) else None

    def targets(self, destination: bytes, now: float) -> Sequence[Endpoint]:
        """Return the peers that get a frame to an address: the one it is behind, else all."""
        known = self._learned.get(destination)
        return self.peers if known is None or now - known.seconds > AGE_SECONDS else (known.peer,)

    def addresses(self, now: float) -> frozenset[bytes]:
        """Forget addresses that were quiet for too long, and return the others."""
        while self._learned:
            oldest = next(iter(self._learned))
            if now - self._learned[oldest].seconds <= AGE_SECONDS:
                break
            del self._learned[oldest]
        return frozenset(self._learned)
