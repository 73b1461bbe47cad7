"""The cable as `ethtool -m` reads it: MADs of an attribute of their own."""

from __future__ import annotations

import pytest

from bluebridge.device.layout.mlx4.cable import (
    CABLE_I2C_ADDRESS,
    CABLE_INFO,
    CABLE_INFO_ATTRIBUTE,
    MAX_CABLE_READ,
    QSFP_BASE_SUM,
    QSFP_EEPROM,
    QSFP_EXTENDED_SUM,
    QSFP_PLUS,
    CableStatus,
)
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.net.mad import MAD, MAD_SIZE, SMP_DATA_OFFSET, Method, MgmtClass
from tests.models.hca_driver import Driver


def ask(
    driver: Driver, address: int, size: int, page: int = 0, i2c: int = CABLE_I2C_ADDRESS
) -> tuple[int, bytes]:
    """Status and bytes, asked for as in Linux `mlx4/port.c: mlx4_get_module_info`."""
    header = MAD.pack(
        base_version=1, class_version=1, mgmt_class=MgmtClass.SUBN_LID, method=Method.GET,
        attr_id=CABLE_INFO_ATTRIBUTE,
    )  # fmt: skip
    question = CABLE_INFO.pack(i2c_address=i2c, page=page, address=address, size=size)
    request = bytes(header).ljust(SMP_DATA_OFFSET, b"\0") + question
    answer = driver.query(Opcode.MAD_IFC, 1, 3, request.ljust(MAD_SIZE, b"\0"))[:MAD_SIZE]
    return MAD.get(answer, "status"), CABLE_INFO.get_raw(answer[SMP_DATA_OFFSET:], "data")[:size]


def test_the_memory_describes_a_copper_cable(driver: Driver) -> None:
    memory = b""
    while len(memory) < QSFP_EEPROM.size:
        size = min(MAX_CABLE_READ, QSFP_EEPROM.size - len(memory))
        status, data = ask(driver, len(memory), size)
        assert status == 0
        memory += data
    assert QSFP_EEPROM.get(memory, "identifier") == QSFP_PLUS
    assert QSFP_EEPROM.get(memory, "upper_identifier") == QSFP_PLUS
    assert QSFP_EEPROM.get_raw(memory, "vendor") == b"bluebridge      "
    for name, covered in (("base_sum", QSFP_BASE_SUM), ("extended_sum", QSFP_EXTENDED_SUM)):
        total = sum(memory[covered.start : covered.stop])
        assert QSFP_EEPROM.get(memory, name) == total & 0xFF
    assert ask(driver, 128, 48, page=3) == ask(driver, 128, 48)  # the memory is flat


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ({"address": 0, "size": 0}, CableStatus.BAD_ADDRESS),
        ({"address": 0, "size": 49}, CableStatus.BAD_ADDRESS),
        ({"address": 255, "size": 2}, CableStatus.BAD_ADDRESS),
        ({"address": 0, "size": 1, "page": 16}, CableStatus.BAD_PAGE),
        ({"address": 0, "size": 1, "i2c": 0x51}, CableStatus.BAD_I2C_ADDRESS),
    ],
)
def test_nonsense_has_a_status_of_its_own(
    driver: Driver, question: dict[str, int], status: CableStatus
) -> None:
    assert ask(driver, **question)[0] == status


def test_a_cable_that_is_out_cannot_be_read(driver: Driver) -> None:
    driver.port.plug(False)
    assert ask(driver, 0, 1)[0] == CableStatus.NOT_CONNECTED
    driver.port.plug(True)
    assert ask(driver, 0, 1) == (0, bytes([QSFP_PLUS]))
