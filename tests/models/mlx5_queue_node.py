"""A guest of the unit tests whose commands and doorbells go the way of a guest's: through BAR0."""

from __future__ import annotations

from bluebridge.device.fabric.interface import Fabric
from bluebridge.device.layout.mlx5.commands import INPUT, Opcode, Status
from bluebridge.device.layout.mlx5.init_segment import UAR_BYTES
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.settings.refused import Refused
from tests.models.fake_host import FakeHost
from tests.models.mlx5_driver import Mlx5Driver
from tests.models.mlx5_node import Mlx5Node

OUTPUT_BYTES = 0x210
"""Bytes of output of a query, in one mailbox; other commands have theirs in the entry."""
_QUERIES = {opcode for opcode in Opcode if opcode.name.startswith("QUERY")} | {Opcode.ACCESS_REG}


class QueueNode(Mlx5Node):
    """The same node with a queue of commands in its memory."""

    def make_adapter(self, host: FakeHost, fabric: Fabric) -> Adapter:
        self.driver = Mlx5Driver(
            host.name, host=host, fabric=fabric, mac=self.mac, blueflame=self.blueflame
        )
        self.driver.set_queue()
        self.hca, self.adapter = self.driver.hca, self.driver.adapter
        for opcode in (Opcode.ENABLE_HCA, Opcode.INIT_HCA):
            self.command(opcode)
        return self.adapter

    def carry_out(self, data: bytes) -> bytes:
        opcode = INPUT.get(data, "opcode")
        answer = self.driver.run(data, OUTPUT_BYTES if opcode in _QUERIES else INPUT.size)
        if answer.status is not Status.OK:
            raise Refused(answer.status, f"opcode {opcode:#x}")
        return answer.output

    def store(self, register: int, data: bytes) -> None:
        self.driver.hca.bar_write(0, self.uar * UAR_BYTES + register, data)
