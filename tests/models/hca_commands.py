"""A host with an `Hca` in it, and its registers and commands as software uses them."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.fabric.addresses import LinkLayer
from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.settings import MESSAGES, NetworkSettings
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.mlx4.ports.port_tables import PortTables
from bluebridge.device.mlx4.settings.config import PLAIN, Features, HcaConfig
from bluebridge.device.rdma.ports.port import Port
from tests.models.fake_host import FakeHost
from tests.models.watched_fabric import WatchedFabric

MAC = bytes.fromhex("020000000a01")


class CommandDriver:
    """Host, device and the command interface's state."""

    def __init__(
        self,
        name: str = "a",
        *,
        fabric: Fabric | None = None,
        mac: bytes = MAC,
        memory: int = 8 << 20,
        features: Features = PLAIN,
        network: NetworkSettings = MESSAGES,
        more_fabrics: Sequence[Fabric] = (),
        host: FakeHost | None = None,
    ) -> None:
        self.host = host or FakeHost(name, size=memory)
        self.fabric = fabric or LocalFabric()
        cable = fabric.fabric if isinstance(fabric, WatchedFabric) else fabric
        infiniband = isinstance(cable, InfinibandFabric)
        link = LinkLayer.INFINIBAND if infiniband else LinkLayer.ETHERNET
        config = HcaConfig(name, mac, link, features, network)
        self.hca = Hca(self.host, [self.fabric, *more_fabrics], config)
        self.adapter = self.hca.adapter
        self.mailbox_in = self.host.allocate(4096)
        self.mailbox_out = self.host.allocate(4096)
        self.toggle = 1
        self.token = 0

    @property
    def port(self) -> Port:
        """The first port of the HCA."""
        return self.adapter.ports[0]

    @property
    def tables(self) -> PortTables:
        """The tables that software has programmed into it."""
        return self.adapter.tables[0]

    def read32(self, offset: int, bar: int = 0) -> int:
        """A 32-bit register."""
        return int.from_bytes(self.hca.bar_read(bar, offset, 4), "big")

    def write32(self, offset: int, value: int, bar: int = 0) -> None:
        """A 32-bit store."""
        data = value.to_bytes(4, "big")
        self.host.store(bar, offset, data)
        self.hca.bar_write(bar, offset, data)

    def post(
        self,
        opcode: int,
        in_param: int = 0,
        modifier: int = 0,
        op_modifier: int = 0,
        out_param: int = 0,
        *,
        event: bool = False,
    ) -> None:
        """Write the command register and flip the toggle."""
        words = (
            in_param >> 32,
            in_param & 0xFFFFFFFF,
            modifier,
            out_param >> 32,
            out_param & 0xFFFFFFFF,
            self.token << 16,
        )
        for index, word in enumerate(words):
            self.write32(bar0.HCR_BASE + 4 * index, word)
        control = bar0.HCR_GO | self.toggle * bar0.HCR_TOGGLE | event * bar0.HCR_EVENT
        self.write32(bar0.HCR_BASE + 0x18, control | op_modifier << 12 | opcode)
        self.toggle ^= 1

    def try_command(
        self,
        opcode: int,
        data: bytes | int = 0,
        modifier: int = 0,
        op_modifier: int = 0,
        *,
        out: bool = False,
    ) -> tuple[Status, int]:
        """A polled command with an immediate or a mailbox as its input: status and immediate."""
        in_param = data if isinstance(data, int) else self.mailbox_in
        if not isinstance(data, int):
            self.host.poke(self.mailbox_in, data.ljust(4096, b"\0"))
        out_param = self.mailbox_out if out else 0
        self.post(opcode, in_param, modifier, op_modifier, out_param)
        control = self.read32(bar0.HCR_BASE + 0x18)
        assert not control & bar0.HCR_GO
        high = self.read32(bar0.HCR_BASE + 0x0C)
        low = self.read32(bar0.HCR_BASE + 0x10)
        return Status(control >> 24), high << 32 | low

    def command(
        self, opcode: int, data: bytes | int = 0, modifier: int = 0, op_modifier: int = 0
    ) -> int:
        """A command that must succeed: its immediate output."""
        status, value = self.try_command(opcode, data, modifier, op_modifier)
        assert status == Status.OK, (Opcode(opcode).name, status, self.host.told[-1])
        return value

    def query(
        self, opcode: int, modifier: int = 0, op_modifier: int = 0, data: bytes | int = 0
    ) -> bytes:
        """A command that must succeed: its output mailbox."""
        self.host.poke(self.mailbox_out, bytes(4096))
        status, _ = self.try_command(opcode, data, modifier, op_modifier, out=True)
        assert status == Status.OK, (Opcode(opcode).name, status, self.host.told[-1])
        return self.host.peek(self.mailbox_out, 4096)
