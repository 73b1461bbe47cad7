"""Chip, semaphores and flash, read as mstflint reads them (`mflash/mflash.c`, `fs2_ops.cpp`)."""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack

import pytest

from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.mlx4.capabilities import QUERY_FW
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.flash import (
    CHIP_CONNECTX3,
    CHIP_CONNECTX3_PRO,
    CHIP_OFFSET,
    FLASH,
    FLASH_IMAGE,
    FLASH_MAGIC,
    FLASH_SECTION,
    LAST_SECTION,
    RUNNING_OFFSET,
    FlashInfo,
    FlashSection,
)
from bluebridge.device.mlx4.board.image import crc16, image_of
from bluebridge.device.mlx4.settings.config import BOARD_ID, Features, HcaConfig
from tests.models.hca_driver import Driver

BURNER_SEMAPHORE, FLASH_SEMAPHORE = 0xF03A0, 0xF03FC
READ_16 = 1 << 30 | 0x03 << 16 | 4 << 8 | 0b11101
READ_ID = 1 << 30 | 0x9F << 16 | 2 << 8 | 0b10101
WRITE_ENABLE, PROGRAM = 1 << 30 | 0x06 << 16 | 0b100, 1 << 30 | 0x02 << 16 | 4 << 8 | 0b11100


class Tool:
    """A reader of the flash that locks it, as mstflint does for each transaction."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        assert driver.read32(BURNER_SEMAPHORE) == 0

    def execute(self, command: int, address: int = 0) -> bytes:
        driver = self.driver
        assert driver.read32(FLASH_SEMAPHORE) == 0
        driver.write32(FLASH.at("address"), address)
        driver.write32(FLASH.at("command"), command)
        assert driver.read32(FLASH.at("command")) >> 30 & 1 == 0
        data = b"".join(driver.hca.bar_read(0, FLASH.at(f"data{at}"), 4) for at in range(4))
        driver.write32(FLASH_SEMAPHORE, 0)
        return data

    def read(self, start: int, length: int) -> bytes:
        begin, end = start & -16, -(-(start + length) // 16) * 16
        data = b"".join(self.execute(READ_16, at) for at in range(begin, end, 16))
        return data[start - begin :][:length]


@pytest.fixture(params=[False, True], ids=["connectx3", "pro"])
def driver(request: pytest.FixtureRequest) -> Driver:
    return Driver(features=Features(pro=request.param))


def sections(tool: Tool, start: int) -> Iterator[tuple[int, int, bytes]]:
    """Type, place and contents of the sections, whose CRCs are right."""
    while start != LAST_SECTION:
        head = tool.read(start, FLASH_SECTION.size)
        size = 4 * FLASH_SECTION.get(head, "words")
        data = tool.read(start + len(head), size)
        assert tool.read(start + len(head) + size, 4) == crc16(head + data).to_bytes(4, "big")
        yield FLASH_SECTION.get(head, "section"), start + len(head), data
        start = FLASH_SECTION.get(head, "following")


def entries(info: bytes) -> dict[int, bytes]:
    """The contents of the section with the info by tag; the last one ends it."""
    found: dict[int, bytes] = {}
    while info:
        word = int.from_bytes(info[:4], "big")
        size = word & 0xFFFFFF
        found[word >> 24], info = info[4 : 4 + size], info[4 + size :]
    assert [*found][-1] == FlashInfo.END
    return found


def test_the_flash_says_what_commands_say(driver: Driver) -> None:
    pro = driver.adapter.config.features.pro
    assert driver.read32(CHIP_OFFSET) == (CHIP_CONNECTX3_PRO if pro else CHIP_CONNECTX3)
    tool = Tool(driver)
    assert tool.execute(READ_ID)[:3].hex() == "ef4015"
    header = tool.read(0, FLASH_IMAGE.size)
    assert FLASH_IMAGE.get_raw(header, "magic") == FLASH_MAGIC
    for word in (0x28, 0x2C):
        assert sum(header[word : word + 4]) & 0xFF == 0
    loader = tool.read(len(header), 32)
    assert loader[-4:] == crc16(loader[:-4]).to_bytes(4, "big")
    found = {kind: (at, data) for kind, at, data in sections(tool, len(header) + len(loader))}
    assert set(found) == {FlashSection.GUIDS, FlashSection.INFO}
    place, guids = found[FlashSection.GUIDS]
    assert place == FLASH_IMAGE.get(header, "guids")
    config = driver.adapter.config
    assert unpack(">4Q", guids[:32])[:3] == (
        config.node_guid, config.port_guid(1), config.port_guid(2)
    )  # fmt: skip
    assert guids[34:40] == config.mac
    place, raw = found[FlashSection.INFO]
    assert place == FLASH_IMAGE.get(header, "info")
    info = entries(raw)
    version = QUERY_FW.unpack(driver.query(Opcode.QUERY_FW))
    said = [version[f"fw_{part}"] for part in ("major", "minor", "subminor")]
    assert [*unpack(">HxxHH", info[FlashInfo.FIRMWARE])] == said
    running = driver.read32(RUNNING_OFFSET), driver.read32(RUNNING_OFFSET + 4)
    assert [running[0] >> 16, running[1] >> 16, running[1] & 0xFFFF] == said
    assert info[FlashInfo.PSID].rstrip(b"\0").decode() == BOARD_ID
    assert int.from_bytes(info[FlashInfo.DEVICE], "big") == config.device_id
    assert tool.read(FLASH_IMAGE.get(header, "image_bytes"), 16) == b"\xff" * 16


def test_what_mstflint_accepted_stays_as_it_is() -> None:
    """The tool of Debian 12 found this image's sections and its checksums right."""
    image = image_of(HcaConfig("a", bytes.fromhex("020000000a01")))
    assert (len(image), crc16(image)) == (496, 0x5AEB)


def test_the_flash_cannot_be_written(driver: Driver) -> None:
    tool = Tool(driver)
    before = tool.read(0, 64)
    tool.execute(WRITE_ENABLE)
    tool.execute(PROGRAM, 0)
    assert tool.read(0, 64) == before
    assert tool.execute(READ_16 | 1 << 11) == b"\xff" * 16  # there is no second flash
    assert tool.read(2 << 20, 64) == before  # which has no address bits beyond its size


def test_a_semaphore_is_the_readers_until_it_is_freed(driver: Driver) -> None:
    assert [driver.read32(FLASH_SEMAPHORE) for _ in range(3)] == [0, 1, 1]
    assert driver.read32(BURNER_SEMAPHORE) == 0
    driver.write32(FLASH_SEMAPHORE, 0)
    assert driver.read32(FLASH_SEMAPHORE) == 0
    driver.write32(bar0.RESET_OFFSET, bar0.RESET_VALUE)
    assert driver.read32(FLASH_SEMAPHORE) == driver.read32(BURNER_SEMAPHORE) == 0
