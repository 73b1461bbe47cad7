"""The firmware image in the flash: no code, but all that `mstflint query` and `verify` look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import pack, unpack
from typing import Final

from bluebridge.device.layout.mlx4.flash import (
    CHIP_CONNECTX3,
    CHIP_CONNECTX3_PRO,
    FLASH_IMAGE,
    FLASH_LOADER,
    FLASH_MAGIC,
    FLASH_SECTION,
    LAST_SECTION,
    FlashInfo,
    FlashSection,
)
from bluebridge.device.layout.pci import VENDOR_MELLANOX
from bluebridge.device.mlx4.settings.config import (
    BOARD_ID,
    FIRMWARE,
    FIRMWARE_DATE,
    MAX_PORTS,
    NODE_DESCRIPTION,
    HcaConfig,
)

LOG_CHUNK: Final = 3
"""Images begin at multiples of 512 KiB: the second one's place is empty."""
LOADER_WORDS: Final = 4
PSID_BYTES: Final = 16
VSD_BYTES: Final = 208
_POLYNOMIAL: Final = 0x100B
_CRC_SIZE: Final = 4
_TAG_SHIFT: Final = 24


def chip_of(config: HcaConfig) -> int:
    """Return the id of the adapter's chip, which is not its PCI device ID."""
    return CHIP_CONNECTX3_PRO if config.features.pro else CHIP_CONNECTX3


def image_of(config: HcaConfig) -> bytes:
    """Return the image of an adapter's firmware: header, boot loader, addresses, info."""
    head = FLASH_IMAGE.size
    loader = bytearray(FLASH_LOADER.pack(loader_words=LOADER_WORDS)) + bytes(4 * LOADER_WORDS + 4)
    loader += pack(">I", crc16(bytes(loader)))
    first = head + len(loader)
    sections = _sections(
        first, [(FlashSection.GUIDS, _guids(config)), (FlashSection.INFO, _info(config))]
    )
    guids = first + FLASH_SECTION.size
    info = first + len(sections[0]) + FLASH_SECTION.size
    body = loader + b"".join(sections)
    header = FLASH_IMAGE.pack(
        magic=FLASH_MAGIC, image_crc=0xFFFF, failsafe=1, log_chunk=LOG_CHUNK, info=info,
        chunk_checksum=_checksum(1 << 3 | LOG_CHUNK), info_checksum=_checksum(info),
        image_bytes=head + len(body), guids=guids,
    )  # fmt: skip
    return bytes(header + body)


def _checksum(value: int) -> int:
    """Return the byte that makes the sum of a word's bytes zero."""
    return -sum(value.to_bytes(4, "big")) & 0xFF


def _sections(start: int, contents: Sequence[tuple[FlashSection, bytes]]) -> list[bytes]:
    """Return sections that lie one behind the other from offset `start`."""
    found: list[bytes] = []
    for section, data in contents:
        start += FLASH_SECTION.size + len(data) + _CRC_SIZE
        last = len(found) + 1 == len(contents)
        raw = FLASH_SECTION.pack(
            section=section, words=len(data) // 4, following=LAST_SECTION if last else start
        )
        content = bytes(raw + data)
        found.append(content + pack(">I", crc16(content)))
    return found


def _guids(config: HcaConfig) -> bytes:
    """Return the GUIDs of node, ports and system image, then the MAC addresses of the ports."""
    ports = range(1, MAX_PORTS + 1)
    guids = [config.node_guid, *map(config.port_guid, ports), config.node_guid]
    macs = [int.from_bytes(config.mac_of(port), "big") for port in ports]
    return pack(f">{len(guids) + MAX_PORTS}Q", *guids, *macs)


def _info(config: HcaConfig) -> bytes:
    major, minor, subminor = FIRMWARE
    day, month, year = (int(number, 16) for number in FIRMWARE_DATE.split("."))
    product = f"{major:02}.{minor:02}.{subminor // 100:02}.{subminor % 100:02}"
    return b"".join(
        (
            _entry(FlashInfo.REVISION, bytes(4)),
            _entry(FlashInfo.FIRMWARE, pack(">HxxHH", major, minor, subminor)),
            _entry(FlashInfo.BUILT, pack(">4xHBB", year, month, day)),
            _entry(FlashInfo.DEVICE, pack(">I", config.device_id)),
            _entry(FlashInfo.PSID, BOARD_ID.encode().ljust(PSID_BYTES, b"\0")),
            _entry(FlashInfo.VSD, NODE_DESCRIPTION.encode().ljust(VSD_BYTES, b"\0")),
            _entry(FlashInfo.PRODUCT, product.encode().ljust(PSID_BYTES, b"\0")),
            _entry(FlashInfo.VENDOR, pack(">I", VENDOR_MELLANOX)),
            _entry(FlashInfo.RELEASED, pack(">I", 1)),
            _entry(FlashInfo.CHIPS, pack(">I", chip_of(config))),
            _entry(FlashInfo.END, b""),
        )
    )


def _entry(tag: FlashInfo, data: bytes) -> bytes:
    return pack(">I", tag << _TAG_SHIFT | len(data)) + data


@lru_cache(maxsize=8)
def crc16(data: bytes) -> int:
    """Return the CRC of whole words as the flash has it (mstflint `mft_utils/crc16.cpp`)."""
    crc = 0xFFFF
    for word in (*_words(data), None):
        crc = _shifted(crc, word or 0, 16 if word is None else 32)
    return crc ^ 0xFFFF


def _words(data: bytes) -> Iterable[int]:
    return unpack(f">{len(data) // 4}I", data)


def _shifted(crc: int, word: int, count: int) -> int:
    for place in reversed(range(count)):
        over, crc = crc & 0x8000, (crc << 1 | word >> place & 1) & 0xFFFF
        if over:
            crc ^= _POLYNOMIAL
    return crc
