"""What this implementation adds to version 0.1: commands for peers that say they know them."""

from __future__ import annotations

from collections import deque

from bluebridge.device.layout.net.roce import ipv4_number
from bluebridge.device.layout.ntrdma.commands import (
    CM_MESSAGE,
    CONNECTIONS,
    EXTENSIONS,
    EXTENSIONS_TAG,
    IPV6,
    NONE,
    RESOLVE,
    RESPONSE,
    CommandCode,
)
from bluebridge.guest.protocols.ntrdma.engine.actions import Operation
from bluebridge.guest.protocols.ntrdma.engine.own_commands import OwnCommands
from bluebridge.guest.protocols.ntrdma.engine.peer import Peer


class AskExtensions(Operation):
    """The question which extensions the peer knows."""


class Resolve(Operation):
    """The question whether an address is the peer's, which nobody answers where no peer is."""


class Extensions:
    """The commands of extensions; they wait until the peer has said what it knows."""

    def __init__(self, peer: Peer, commands: OwnCommands) -> None:
        self._peer, self._commands = peer, commands
        self._held: deque[tuple[bytearray, Operation]] = deque()

    @property
    def peer_connects(self) -> bool | None:
        """Whether the peer has a connection manager; None until it has said so."""
        known = self._peer.extensions
        return None if known is None else bool(known & CONNECTIONS)

    @property
    def peer_has_ipv6(self) -> bool | None:
        """Whether the peer's connection manager takes IPv6; None until it has said so."""
        known = self._peer.extensions
        return None if known is None else bool(known & IPV6)

    def send_cm(self, mad: bytes, sender: bytes) -> bool:
        """Send a CM message of the own GID `sender`; returns False if there is no peer for it."""
        ip = ipv4_number(sender)
        takes = self.peer_connects if ip else self.peer_has_ipv6
        if not self._peer.ready or takes is False:
            return False
        command = CM_MESSAGE.pack(op=CommandCode.CM_MESSAGE, pd_key=ip, mad=mad)
        self._ask(command, Operation(lenient=True))
        return True

    def resolve(self, gid: bytes, asker: bytes) -> Operation:
        """Ask the peer whether the address of a GID is its own; it refuses if not.

        `asker` is the own address that asks.
        """
        operation = Resolve()
        if not self._peer.ready:
            operation.good = False
        elif ip := ipv4_number(gid):
            self._ask(RESOLVE.pack(op=CommandCode.RESOLVE, ip=ip), operation)
        else:
            form = RESOLVE.pack(op=CommandCode.RESOLVE, address=gid, asker=asker)
            self._ask(form, operation)
        return operation

    def _ask(self, command: bytearray, operation: Operation) -> None:
        """Send a command that version 0.1 does not know, to a peer that knows it."""
        if self.peer_connects is None:
            self._held.append((command, operation))
        elif self.peer_connects:
            self._commands.post(command, operation)
        else:
            self._commands.unsent.append(operation)

    def enabled(self) -> None:
        """Ask the peer what it knows."""
        known = NONE.pack(op=CommandCode.NONE, tag=EXTENSIONS_TAG, extensions=EXTENSIONS)
        self._commands.post(known, AskExtensions(lenient=True))

    def ended(self, operation: Operation, response: bytes | None) -> None:
        """Take the answer to one of these commands; an unanswered `Resolve` is refused."""
        if isinstance(operation, AskExtensions):
            self._take(response)
        elif isinstance(operation, Resolve) and response is None:
            operation.refused = True

    def _take(self, response: bytes | None) -> None:
        """Learn what the peer knows beyond version 0.1, which sends the command back."""
        if response is not None:
            tagged = RESPONSE.get(response, "tag") == EXTENSIONS_TAG
            self._peer.extensions = RESPONSE.get(response, "extensions") if tagged else 0
        held, self._held = self._held, deque()
        for command, operation in held:
            if self.peer_connects is None:
                self._commands.unsent.append(operation)
            else:
                self._ask(command, operation)
