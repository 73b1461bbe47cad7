"""The networks of a server: one per port, for each link layer and each network number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric, StagedFabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.subnet.fabric import SWITCH_GUID, InfinibandFabric, Later
from bluebridge.device.fabric.subnet.manager import SubnetManager
from bluebridge.device.fabric.subnet.traps import TrapSender


class Networks:
    """The networks of `ports` ports for adapters with `links`: link layer and network number.

    `managed` says whether the switch of an InfiniBand network has a subnet manager; otherwise
    software in a guest has to be one, and the switch sends it traps. `later` calls an action after
    so many seconds. A `trusting` network lets ports use each other's addresses.
    """

    def __init__(
        self,
        links: Iterable[tuple[LinkLayer, int]],
        ports: int,
        later: Later,
        *,
        managed: bool,
        trusting: bool = False,
    ) -> None:
        self._networks = {
            (link, number): [
                _network(link, number * ports + port, later, managed, trusting)
                for port in range(ports)
            ]
            for link, number in sorted(set(links))
        }

    def decorate_switches(self, wrap: Callable[[StagedFabric, str], Fabric]) -> None:
        """Let the switch of each network send through `wrap(network, name of the switch)`."""
        for (_, number), networks in self._networks.items():
            for port, network in enumerate(networks, 1):
                if isinstance(network, InfinibandFabric):
                    network.switch.send_through(wrap(network, _switch_name(number, port)))

    def of(self, link: LinkLayer, number: int = 0) -> list[StagedFabric]:
        """Return the networks that ports 1, 2… of an adapter with this link and number are on."""
        return self._networks[link, number]


def _switch_name(number: int, port: int) -> str:
    """Return the name of a switch: `switch`, `switch/2`; of network 1 `switch.1`, `switch.1/2`."""
    name = f"switch.{number}" if number else "switch"
    return name if port == 1 else f"{name}/{port}"


def _network(
    link: LinkLayer, number: int, later: Later, managed: bool, trusting: bool
) -> StagedFabric:
    if link is LinkLayer.ETHERNET:
        return LocalFabric(trusting=trusting)
    fabric = InfinibandFabric(SWITCH_GUID + number)
    if managed:
        SubnetManager(fabric, later)
    else:
        TrapSender(fabric, later)
    return fabric
