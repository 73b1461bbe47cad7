"""The ports of a network at which other hosts are.

Who is behind which host the network learns from what it sends. What is for nobody known goes to
every host. Nothing goes from one host to another: so labs that are joined make no loop, whatever
is joined to what.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic
from typing import Final

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Frames, Message, Train
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.throttle import Throttle
from bluebridge.device.underlay.tunnel import MAC_SIZE, MOST_SEGMENTS, BurstSocket, Endpoint, Tunnel

log: Final = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.002
"""Seconds for which a turn of the loop takes datagrams."""
MOST_WAITING: Final = 4 << 20
"""Most bytes that wait for one peer; a frame that finds no room is dropped and counted."""
AGAIN_SECONDS: Final = 0.001
"""Seconds until a socket that had no room is tried again."""


class _Peer:
    """A `FabricPort` for a peer: datagrams that wait for it, and counts.

    `wake` is called when some wait.
    """

    __slots__ = ("_header", "_wake", "bytes", "dropped", "received", "sent", "unsent", "waiting")

    def __init__(self, header: bytes, wake: Callable[[], None]) -> None:
        self._header = header
        self._wake = wake
        self.waiting: deque[bytes] = deque()
        self.bytes = 0
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self.unsent = 0

    def receive(self, message: Message) -> int:
        """Let frames wait until the end of this turn."""
        if isinstance(message, Frames):
            for train in message.trains:
                for frame in train.frames:
                    self._wait(self._header + frame)
            self._wake()
        return 0

    def _wait(self, datagram: bytes) -> None:
        if self.bytes + len(datagram) > MOST_WAITING:
            self.dropped += 1
            return
        self.bytes += len(datagram)
        self.waiting.append(datagram)


class Underlay:
    """A port for each host of `tunnel`, for all frames between it and `network`.

    They are behind the decorators of `cable`, with a socket bound to `own`. Raises `OSError` when
    that cannot be.
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
        self._peers = {peer: _Peer(tunnel.header, self._flush_soon) for peer in tunnel.peers}
        self._flushing = False
        self._failures = Throttle()
        for peer in self._peers.values():
            cable.attach(peer)
            network.learn_from(peer, self)
            cable.announce(peer, frozenset(), up=True)
        loop.add_reader(self._socket.fileno(), self._receive_all)

    def close(self) -> None:
        """Leave the network and close the socket."""
        self._loop.remove_reader(self._socket.fileno())
        for peer in self._peers.values():
            self._fabric.detach(peer)
        self._socket.close()

    # -- from the network to peers --------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

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
            if self._failures.admits():
                why = os.strerror(error.errno or errno.EIO)
                log.warning(
                    "nothing goes to %s: %s (%d so far)", endpoint, why, self._failures.count
                )
        for _ in range(done):
            peer.bytes -= len(peer.waiting.popleft())
        return done > 0

    # -- from peers to the network --------------------------------------------------------------

    def _receive_all(self) -> None:
        """Hand frames of peers to the network for a bounded time; more wait in the socket."""
        end = monotonic() + TURN_SECONDS
        while monotonic() <= end:
            found = list(self._socket.receive())
            for source, datagram in found:
                frame = self._tunnel.read(datagram) if self._tunnel.admits(source) else None
                if frame is not None:
                    peer = self._peers[source]
                    peer.received += 1
                    self._fabric.send(peer, Frames(frame[:MAC_SIZE], [Train([frame])]))
            if not found:
                return

    # -- what there is to see -------------------------------------------------------------------

    def report(self) -> list[str]:
        """Return a line for each peer, and those for what was refused, if there is any."""
        lines = [self._text(endpoint, peer) for endpoint, peer in self._peers.items()]
        refused = [f"{why} {count}" for why, count in self._tunnel.refused.items() if count]
        return [*lines, f"refused: {', '.join(refused)}"] if refused else lines

    def _text(self, endpoint: Endpoint, peer: _Peer) -> str:
        heard = f"received {peer.received}" if peer.received else "nothing received yet"
        counts = {
            "no room for": peer.dropped,
            "could not send": peer.unsent,
            "from addresses of others": self._network.trespasses(peer)[0],
        }
        more = "".join(f", {name} {count}" for name, count in counts.items() if count)
        return f"peer {endpoint}: sent {peer.sent}, {heard}{more}"
