"""Two HCAs on a cable or a subnet, whose software does step by step what the fuzzer says."""

from __future__ import annotations

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.manager import SubnetManager, TrapSender
from bluebridge.device.layout.mlx4 import bar0, uar
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.settings.config import Features, HcaConfig
from tests.fuzz import guests
from tests.fuzz.timed_host import TimedHost

INFINIBAND, TWO_PORTS, BLUEFLAME, PRO, LARGE_CQES, UNMANAGED, LARGE_MEMORY, TRUSTING = (
    1 << bit for bit in range(8)
)
"""Bits of an input's first byte."""
THIRD = 1
"""Of its second byte: there is a third HCA."""
PLUG, FAULT = range(2)
"""What an operator does: the cable of a port in or out, an internal error."""
MOST_DRAINS = 5
"""Times `timed_host.CALLS` calls, after the last step: more than any queue has entries for."""
_SIZES = {0: bar0.BAR0_SIZE, 2: uar.BAR2_SIZE}


class Adapters(guests.Machine):
    """Hosts 0 and 1 have an HCA each, host 2 may; host 3 is the clock of the subnet."""

    def __init__(self, header: bytes) -> None:
        flags = header[0]
        size = 64 << 20 if flags & LARGE_MEMORY else 8 << 20
        self.hosts = [TimedHost(name, size=size) for name in "abc"]
        self.hosts.append(TimedHost("clock", size=4096))
        features = Features(
            ports=1 + bool(flags & TWO_PORTS),
            blueflame=bool(flags & BLUEFLAME),
            pro=bool(flags & PRO),
            large_cqes=bool(flags & LARGE_CQES),
            trusting=bool(flags & TRUSTING),
        )
        fabrics = [self._fabric(flags) for _ in range(features.ports)]
        link = LinkLayer.INFINIBAND if flags & INFINIBAND else LinkLayer.ETHERNET
        macs = [mac_of(number) for number in (1, 2, 3)[: 3 if header[1] & THIRD else 2]]
        self.functions = [
            Hca(host, fabrics, HcaConfig(host.name, mac, link=link, features=features))
            for host, mac in zip(self.hosts, macs, strict=False)
        ]
        self.sizes = [_SIZES] * len(macs)

    def _fabric(self, flags: int) -> Fabric:
        if not flags & INFINIBAND:
            return LocalFabric(trusting=bool(flags & TRUSTING))
        fabric = InfinibandFabric()
        kind = TrapSender if flags & UNMANAGED else SubnetManager
        kind(fabric, self.hosts[3].call_later)
        return fabric

    def operate(self, function: int, what: int, number: int) -> None:
        """Pull a cable, or plug it in, of port `number`; an internal error."""
        hca = self.functions[function % len(self.functions)]
        if what & 1 == PLUG:
            ports = hca.adapter.ports
            ports[(number >> 1) % len(ports)].plug(bool(number & 1))
        else:
            hca.fail("as an operator says")

    def end(self) -> None:
        """Nothing that a driver posts makes an HCA work for ever: rings have an end."""
        for host in self.hosts:
            for _ in range(MOST_DRAINS):
                host.run()
            assert not host.busy, f"{host.name} has work without an end"
        super().end()


def mac_of(number: int) -> bytes:
    """The address of an HCA, as in the unit tests."""
    return bytes((2, 0, 0, 0, 10, number))


TARGETS = {"hca": guests.target("hca", Adapters)}
