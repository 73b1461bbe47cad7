"""A decorator of a fabric for tests: it shows what is sent, or takes it away."""

from __future__ import annotations

from collections.abc import Callable, Set

from bluebridge.device.fabric.interface import Fabric, FabricPort
from bluebridge.device.fabric.messages import Message

Watcher = Callable[[FabricPort, Message], bool]


class WatchedFabric:
    """A `Fabric` in front of `fabric`.

    `watch(source, message)` sees each message before it is delivered, and returns whether it is.
    """

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.watch: Watcher = lambda source, message: True

    def attach(self, port: FabricPort) -> None:
        """Connect a port."""
        self.fabric.attach(port)

    def detach(self, port: FabricPort) -> None:
        """Disconnect a port."""
        self.fabric.detach(port)

    def announce(self, port: FabricPort, addresses: Set[bytes], *, up: bool) -> None:
        """Addresses and link state of a port."""
        self.fabric.announce(port, addresses, up=up)

    def send(self, source: FabricPort, message: Message) -> int:
        """Show, then deliver."""
        return self.fabric.send(source, message) if self.watch(source, message) else 0
