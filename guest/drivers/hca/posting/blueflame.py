"""Sending through BlueFlame as libmlx4 does (lib/qp.c: mlx4_post_send).

What goes this way is a post of one request with inline data, or of one RDMA READ, whose entry fits
into half a register. The device must advertise BlueFlame.
"""

from __future__ import annotations

from bluebridge.device.layout.blueflame import LINE
from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE
from bluebridge.device.layout.mlx4.wqe import DS_MASK
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.blueflame import BlueFlameRegister, BlueFlameUse
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.verbs.enums import WrOpcode
from bluebridge.guest.verbs.values import SendWr

_SEGMENT = 16
_BAR = 2


class BlueFlame(BlueFlameRegister):
    """The first register of one UAR's BlueFlame page.

    Raises `HcaError` when the device does not advertise BlueFlame.
    """

    def __init__(self, bus: Bus, dev_cap: bytes, uar: int, use: BlueFlameUse) -> None:
        if not QUERY_DEV_CAP.get(dev_cap, "blueflame"):
            raise HcaError("the device has no BlueFlame: start it with --blueflame on")
        uar_area = 1 << (QUERY_DEV_CAP.get(dev_cap, "uar_size_code") + 20)
        place = uar_area + (0 if use.wrong_page else uar * PAGE_SIZE)
        buffer = 1 << (QUERY_DEV_CAP.get(dev_cap, "log_bf_reg_size") - 1)
        super().__init__(bus.write64, _BAR, place, buffer, use)

    def send(self, wr: SendWr, entry: memoryview, qpn: int, index: int) -> bool:
        """Store the only entry of a post into BlueFlame; True when it needs no doorbell any more.

        `entry` is the valid entry in its ring; the number of the queue pair and the 16-bit index of
        the entry are stored where fetched entries have zeros or a VLAN.
        """
        length = (entry[7] & DS_MASK) * _SEGMENT
        if not (wr.inline_data or wr.opcode == WrOpcode.RDMA_READ) or not self.takes(length):
            return False
        entry[1:3] = (index & 0xFFFF).to_bytes(2, "big")
        entry[4:7] = qpn.to_bytes(3, "big")
        self.store(entry[: -(-length // LINE) * LINE])
        return True
