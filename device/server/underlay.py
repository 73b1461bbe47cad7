"""The port of a network at which other hosts are."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from itertools import islice
from time import monotonic
from typing import Final

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.throttle import Throttle
from bluebridge.device.underlay.tunnel import (
    MAC_SIZE,
    MOST_SEGMENTS,
    BurstSocket,
    Endpoint,
    Tunnel,
)

log: Final = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.002
"""Seconds for which a turn of the loop takes datagrams."""
MOST_WAITING: Final = 4 << 20
"""Most bytes that wait for one peer; a frame that finds no room is dropped and counted."""
AGAIN_SECONDS: Final = 0.001
"""Seconds until a socket that had no room is tried again."""


class _Peer:
    """A peer: datagrams that wait for it, and counts."""

    __slots__ = ("bytes", "dropped", "received", "sent", "unsent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.bytes = 0
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self.unsent = 0


class Underlay:
    """A `FabricPort` for all frames between `network` and the hosts of `tunnel`.

    It is behind the decorators of `cable`, with a socket bound to `own`. Raises `OSError` when that
    cannot be.
    """

    def __init__(
        self, own: Endpoint, tunnel: Tunnel, network: LocalFabric, cable: Fabric, loop: EventLoop
    ) -> None:
        try:
            self._socket = BurstSocket(own)
        except OSError as error:
            raise OSError(
                error.errno, f"underlay {own}: {error.strerror}; name another with --underlay"
            ) from None
        self._network = network
        self._fabric = cable
        self._tunnel = tunnel
        self._loop = loop
        self._peers = {peer: _Peer() for peer in tunnel.peers}
        self._announced: frozenset[bytes] = frozenset()
        self._flushing = False
        self._failures = Throttle()
        cable.attach(self)
        cable.announce(self, self._announced, up=True)
        loop.add_reader(self._socket.fileno(), self._receive_all)

    def close(self) -> None:
        """Leave the network and close the socket."""
        self._loop.remove_reader(self._socket.fileno())
        self._fabric.detach(self)
        self._socket.close()

    # -- from the network to peers --------------------------------------------------------------

    def receive(self, message: Message) -> int:
        """Let frames wait for the peers that they are for, until the end of this turn."""
        if isinstance(message, Frames):
            now = monotonic()
            for train in message.trains:
                for frame in train.frames:
                    datagram = self._tunnel.header + frame
                    for peer in self._tunnel.targets(bytes(frame[:MAC_SIZE]), now):
                        self._wait(self._peers[peer], datagram)
            if not self._flushing:
                self._flushing = True
                self._loop.call_soon(self._flush)
        return 0

    def _wait(self, peer: _Peer, datagram: bytes) -> None:
        if peer.bytes + len(datagram) > MOST_WAITING:
            peer.dropped += 1
            return
        peer.bytes += len(datagram)
        peer.waiting.append(datagram)

    def _flush(self) -> None:
        """Send what waits, a burst to each peer in turn, for a bounded time; the rest waits on."""
        self._flushing = False
        end = monotonic() + TURN_SECONDS
        room = True
        while room and monotonic() < end:
            busy = [(endpoint, peer) for endpoint, peer in self._peers.items() if peer.waiting]
            if not busy:
                return
            room = all(self._send(endpoint, peer) for endpoint, peer in busy)
        self._flushing = True
        if room:
            self._loop.call_soon(self._flush)
        else:
            self._loop.call_later(AGAIN_SECONDS, self._flush)

    def _send(self, endpoint: Endpoint, peer: _Peer) -> bool:
        """Send a burst of what waits for a peer; False when the socket has no room."""
        first = list(islice(peer.waiting, MOST_SEGMENTS))
        try:
            done = self._socket.send(endpoint, first)
            peer.sent += done
        except OSError as error:
            done = len(first)
            peer.unsent += done
            self._complain(endpoint, error)
        for _ in range(done):
            peer.bytes -= len(peer.waiting.popleft())
        return done > 0

    def _complain(self, endpoint: Endpoint, error: OSError) -> None:
        if self._failures.admits():
            why = os.strerror(error.errno or errno.EIO)
            log.warning("nothing goes to %s: %s (%d so far)", endpoint, why, self._failures.count)

    # -- from peers to the network --------------------------------------------------------------

    def _receive_all(self) -> None:
        """Hand frames of peers to the network for a bounded time; more wait in the socket."""
        now = monotonic()
        end = now + TURN_SECONDS
        while True:
            found = list(self._socket.receive())
            for source, datagram in found:
                self._arrive(source, datagram, now)
            now = monotonic()
            if not found or now > end:
                break
        self._announce(now)

    def _arrive(self, source: Endpoint, datagram: bytes, now: float) -> None:
        peer = self._tunnel.peer(source)
        frame = None if peer is None else self._tunnel.read(peer, datagram, now)
        if peer is not None and frame is not None:
            self._peers[peer].received += 1
            self._fabric.send(self, Frames(frame[:MAC_SIZE], [Train([frame])]))

    def _announce(self, now: float) -> None:
        """Tell the network who is behind this port, so that it keeps their frames from others."""
        addresses = self._tunnel.addresses(now)
        if addresses != self._announced:
            self._announced = addresses
            self._fabric.announce(self, addresses, up=True)

    # -- what there is to see -------------------------------------------------------------------

    def report(self) -> list[str]:
        """Return a line for each peer, and those for what was refused, if there is any."""
        lines = [_text(endpoint, peer) for endpoint, peer in self._peers.items()]
        refused = [f"{why} {count}" for why, count in self._tunnel.refused.items() if count]
        if refused:
            lines.append(f"refused: {', '.join(refused)}")
        spoofed, _ = self._network.trespasses(self)
        if spoofed:
            lines.append(f"dropped from addresses of this lab: {spoofed}")
        return lines


def _text(endpoint: Endpoint, peer: _Peer) -> str:
    heard = f"received {peer.received}" if peer.received else "nothing received yet"
    lost = "".join(
        f", {name} {count}"
        for name, count in (("no room for", peer.dropped), ("could not send", peer.unsent))
        if count
    )
    return f"peer {endpoint}: sent {peer.sent}, {heard}{lost}"
