"""Two guests at a Switchtec switch, as ntb_hw_switchtec drives it."""

from __future__ import annotations

from bluebridge.device.layout.ntb import switchtec as layout
from bluebridge.device.layout.ntb.switchtec import BlockStatus, LinkMessage, Operation
from bluebridge.device.ntb.shape import HOLD_SECONDS, BridgeLink
from bluebridge.device.ntb.switchtec import SwitchtecBridge
from tests.models.ntb_pair import BridgeGuest

BAR2, BAR4 = 0xF7_8000_0000, 0xF7_8020_0000
LUT_BYTES = layout.LUTS * layout.LUT_SIZE
ALL = (1 << 60) - 1


class Guest(BridgeGuest):
    """One partition as ntb_hw_switchtec drives it."""

    def __init__(self, name: str, link: BridgeLink, partition: int) -> None:
        self.partition = partition
        bars = {2: (BAR2, 2 << 20), 4: (BAR4, 1 << 20)}
        super().__init__(f"{name}.ntbs", lambda bus: SwitchtecBridge(bus, link), bars)

    @property
    def messaging(self) -> int:
        """Start of the own doorbells."""
        return layout.MESSAGING.at("outbound_doorbell", self.partition)

    def operate(self, block: int, operation: Operation, status: BlockStatus) -> None:
        """switchtec_ntb_part_op."""
        self.write(layout.CONTROL.at("operation", block), 4, operation)
        assert self.read(layout.CONTROL.at("status", block), 4) == status

    def open_direct(self, bar: int, address: int, size: int) -> None:
        """switchtec_ntb_mw_set_direct: the peer's BAR shows this guest's memory."""
        block = 1 - self.partition
        self.operate(block, Operation.LOCK, BlockStatus.LOCKED)
        at = layout.CONTROL.at(f"bar{bar}_control", block)
        self.write(at, 4, self.read(at, 4) | layout.DIRECT_ENABLE)
        self.write(at + 4, 4, (size.bit_length() - 1) | size)
        self.write(at + 8, 8, self.partition | address)
        self.operate(block, Operation.CONFIGURE, BlockStatus.NORMAL)

    def open_lut(self, index: int, address: int) -> None:
        """config_rsvd_lut_win."""
        block = 1 - self.partition
        self.operate(block, Operation.LOCK, BlockStatus.LOCKED)
        entry = layout.LUT_ENABLE | self.partition << 1 | address
        table = (layout.LUT0, layout.LUT1)[block]
        self.write(table.at("entry", index), 8, entry)
        self.operate(block, Operation.CONFIGURE, BlockStatus.NORMAL)

    def setup(self) -> None:
        """switchtec_ntb_init_db, _init_msgs, _init_db_msg_irq."""
        shift = 0 if self.partition else 32
        self.write(self.messaging + 0x08, 8, 0x0FFFFFFF << shift)
        self.write(self.messaging + 0x18, 8, 0)
        message_map = sum((n | (1 - self.partition) << 2) << 8 * n for n in range(4))
        self.write(self.messaging + 0x60, 4, message_map)
        for slot in range(4):
            self.write(self.messaging + 0x88 + 8 * slot, 8, 1 << 32 | 1 << 40)
        for index in range(64):
            self.write(self.messaging + 0x20 + index, 1, 1 if index < 60 else 2)

    def send(self, value: int, slot: int = 0) -> None:
        """switchtec_ntb_send_msg."""
        self.write(self.messaging + 0x68 + 8 * slot, 4, value)


class Pair:
    """Both guests after their drivers' probes."""

    def __init__(self) -> None:
        self.link = BridgeLink(lambda seconds, action: self.a.bus.call_later(seconds, action))
        self.a = Guest("a", self.link, 0)
        self.b = Guest("b", self.link, 1)
        self.a.bridge.join(self.b.bridge)
        for guest in (self.a, self.b):
            guest.setup()

    def know_the_link(self) -> None:
        """Both drivers tell each other that they see it, and take the messages."""
        for guest in (self.a, self.b):
            guest.send(LinkMessage.UP)
            guest.write(guest.messaging + 0x8C, 1, 1)
        for guest in (self.a, self.b):
            guest.send(LinkMessage.CHECK)
        for guest in (self.a, self.b):
            guest.bus.run(HOLD_SECONDS)
            for _ in range(2):
                guest.write(guest.messaging + 0x8C, 1, 1)
            guest.bus.take_interrupts()
