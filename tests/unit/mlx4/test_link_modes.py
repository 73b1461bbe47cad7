"""Link modes through ACCESS_REG, and how received checksums are reported (CONFIG_DEV)."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.capabilities import QUERY_PORT
from bluebridge.device.layout.mlx4.commands import Opcode, Status
from bluebridge.device.layout.mlx4.ports import (
    ACCESS_REG,
    CONFIG_DEV,
    PTYS,
    PTYS_ETHERNET,
    PTYS_ID,
    LinkMode,
)
from tests.models.hca_driver import Driver

QUERY, WRITE = 1, 2
BOTH = LinkMode.CR4_40G | LinkMode.CR_10G


@pytest.fixture
def driver() -> Driver:
    """A device whose port is open."""
    driver = Driver().start()
    driver.command(Opcode.INIT_PORT, 0, 1)
    return driver


def request(method: int, register: int = PTYS_ID, **fields: int) -> bytes:
    """What `mlx4_ACCESS_PTYS_REG` sends."""
    values = {"port": 1, "protocol": PTYS_ETHERNET, **fields}
    head = ACCESS_REG.pack(constant=0x804, register=register, method=method, length=14)
    return bytes(head) + bytes(PTYS.pack(values))


def access(driver: Driver, method: int, **fields: int) -> dict[str, int | bytes]:
    """The register as it is afterwards."""
    answer = driver.query(Opcode.ACCESS_REG, data=request(method, **fields))
    assert ACCESS_REG.get(answer, "status") == 0
    return PTYS.unpack(answer, ACCESS_REG.size)


def speed(driver: Driver) -> int:
    """What QUERY_PORT says."""
    return QUERY_PORT.get(driver.query(Opcode.QUERY_PORT, 1), "link_speed")


def test_a_link_mode_is_chosen(driver: Driver) -> None:
    modes = access(driver, QUERY)
    assert (modes["eth_capability"], modes["eth_admin"]) == (BOTH, BOTH)
    assert (modes["eth_operational"], speed(driver)) == (LinkMode.CR4_40G, 0x40)
    modes = access(driver, WRITE, eth_admin=LinkMode.CR_10G)
    assert (modes["eth_operational"], speed(driver)) == (LinkMode.CR_10G, 0x01)
    driver.port.plug(False)
    assert access(driver, QUERY)["eth_operational"] == 0


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(QUERY, register=0x5005), Status.BAD_PARAM),
        (request(QUERY, port=2), Status.BAD_INDEX),
        (request(QUERY, protocol=1), Status.BAD_PARAM),
        (request(3), Status.BAD_PARAM),
        (request(WRITE), Status.BAD_PARAM),
        (request(WRITE, eth_admin=1), Status.BAD_PARAM),
    ],
)
def test_refusals(driver: Driver, data: bytes, status: Status) -> None:
    assert driver.try_command(Opcode.ACCESS_REG, data, out=True)[0] == status
    assert access(driver, QUERY)["eth_admin"] == BOTH


def test_checksum_mode(driver: Driver) -> None:
    answer = driver.query(Opcode.CONFIG_DEV, op_modifier=1)
    assert CONFIG_DEV.get(answer, "rx_checksum") == 0x22
