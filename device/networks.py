"""The networks of a server: of each kind of link one for each port number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.subnet.fabric import SWITCH_GUID, InfinibandFabric, Later
from bluebridge.device.fabric.subnet.manager import SubnetManager
from bluebridge.device.fabric.subnet.traps import TrapSender


class Networks:
    """Networks for `ports` ports of adapters with `links`.

    `managed` says whether the switch of an InfiniBand network has a subnet manager; otherwise
    software in a guest has to be one, and the switch sends it traps. `later` calls an action
    after so many seconds.
    """

    def __init__(
        self, links: Iterable[LinkLayer], ports: int, later: Later, *, managed: bool
    ) -> None:
        self._networks = {
            link: [_network(link, number, later, managed) for number in range(ports)]
            for link in set(links)
        }

    def decorate_switches(self, wrap: Callable[[LocalFabric, str], Fabric]) -> None:
        """Let the switch of each network send through `wrap(network, name of the switch)`."""
        for number, network in enumerate(self._networks.get(LinkLayer.INFINIBAND, []), 1):
            if isinstance(network, InfinibandFabric):
                name = "switch" if number == 1 else f"switch/{number}"
                network.switch.send_through(wrap(network, name))

    def of(self, link: LinkLayer) -> list[LocalFabric]:
        """The networks that ports 1, 2… of an adapter with this kind of link are on."""
        return self._networks[link]


def _network(link: LinkLayer, number: int, later: Later, managed: bool) -> LocalFabric:
    if link is LinkLayer.ETHERNET:
        return LocalFabric()
    fabric = InfinibandFabric(SWITCH_GUID + number)
    if managed:
        SubnetManager(fabric, later)
    else:
        TrapSender(fabric, later)
    return fabric
