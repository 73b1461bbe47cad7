"""Fixtures of all parts of the contract: two devices, and two players connected over them."""

from __future__ import annotations

import pytest

from bluebridge.guest.verbs import AccessFlags, Device, FastRegistration, SendWr, WcStatus, WrOpcode
from tests.models.verbs.player import PATTERN, SIZE, Player, fill

Devices = tuple[Device, Device]
Pair = tuple[Player, Player]
LOCAL, WRITE, READ = AccessFlags.LOCAL_WRITE, AccessFlags.REMOTE_WRITE, AccessFlags.REMOTE_READ
OK, FLUSH = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
LENGTHS = (0, 1, 64, 1023, 1024, 1025, SIZE)


def join(a: Player, b: Player, **rts: int) -> Pair:
    """Connect two players; `rts` belongs to the first."""
    a.connect(b, **rts)
    b.connect(a)
    return a, b


def with_a_send_that_waits(a: Device, b: Device) -> Player:
    """A player of `a` that has written to one of `b`, and whose send nobody receives."""
    x, y = join(Player(a), Player(b))
    fill(x, y)
    x.send(WrOpcode.RDMA_WRITE, [x.sge(0, 4096)], y)
    x.expect(OK)
    assert bytes(y.view[:4096]) == PATTERN[:4096]
    x.send(WrOpcode.SEND, [x.sge(0, 64)])
    return x


def registration(
    region: FastRegistration, address: int, key: int, access: AccessFlags = LOCAL | WRITE
) -> SendWr:
    """REG_MR of one page."""
    request = SendWr(1, WrOpcode.REG_MR, mr=region, pages=[address], key=key, access=access)
    request.iova, request.length = address, 4096
    return request


class OnDevices:
    """Base of the contract: `devices` is the provider's, `pair` two connected players."""

    @pytest.fixture
    def pair(self, devices: Devices) -> Pair:
        """Two connected players with different bytes in their memories."""
        a, b = join(Player(devices[0], inline=200), Player(devices[1], inline=200))
        fill(a, b)
        return a, b
