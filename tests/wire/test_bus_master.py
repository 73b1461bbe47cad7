"""A guest that takes Bus Master Enable away from a busy adapter."""

from __future__ import annotations

import pytest

from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, SEND_DOORBELL
from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.drivers.hca.resources.commands import FirmwareError
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.connection import CONFIG
from tests.models.players import PATTERN, Player, connected

OK = WcStatus.SUCCESS
MASTER = layout.COMMAND_MEMORY | layout.COMMAND_BUS_MASTER


def knock_blindly(player: Player) -> None:
    """Ring the send doorbell; commands with mailboxes are no way to know that it was heard."""
    bus = player.ctx.adapter.bus
    bus.write32(2, player.ctx.adapter.uar * PAGE_SIZE + SEND_DOORBELL, player.qp.qpn << 8)
    assert isinstance(bus, SocketBus)
    bus.settle()


def test_no_bus_master(
    hca_buses: tuple[SocketBus, SocketBus], contexts: tuple[Context, Context]
) -> None:
    """Bus mastering off in the middle of it: not a byte comes from or goes to this guest."""
    a, b = connected(*contexts)
    a.view[:] = PATTERN
    b.view[:] = bytes(reversed(PATTERN))
    command = hca_buses[0].client
    command.write(CONFIG, 4, layout.COMMAND_MEMORY.to_bytes(2, "little"))
    with pytest.raises(FirmwareError):
        contexts[0].query_port()
    before = bytes(hca_buses[0].ram)
    b.send(WrOpcode.RDMA_WRITE, [b.sge()], a)  # towards the guest that is off
    b.send(WrOpcode.RDMA_READ, [b.sge()], a)
    assert b.wait()[0].status is not OK
    knock_blindly(a)
    assert bytes(b.view) == bytes(reversed(PATTERN))
    assert bytes(hca_buses[0].ram) == before
    command.write(CONFIG, 4, MASTER.to_bytes(2, "little"))
    a.reconnect(b)
    b.reconnect(a)
    a.send(WrOpcode.RDMA_WRITE, [a.sge()], b)
    a.expect(OK)
    assert bytes(b.view) == PATTERN
