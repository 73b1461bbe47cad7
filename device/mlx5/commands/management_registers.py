"""Registers about the adapter as a whole: names, which there are, versions of the firmware."""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.registers import (
    BOOT_IMAGE,
    INFO_VERSION,
    MCAM,
    MCQI,
    MCQI_DATA_OFFSET,
    MCQI_VERSION,
    MCQS,
    NODE_DESC,
    RegisterId,
)
from bluebridge.device.mlx5.adapter import Adapter
from bluebridge.device.mlx5.commands.access_register import Access
from bluebridge.device.mlx5.settings.config import FIRMWARE, NODE_DESCRIPTION
from bluebridge.device.mlx5.settings.refused import Refused

FIRST_MANAGEMENT_REGISTER = 0x9000
MANAGEMENT_REGISTERS = (RegisterId.MCQS, RegisterId.MCQI)
"""Those that MCAM offers. The node's description and the host's endianness need no offer."""
BIG_ENDIAN = 0x80
IN_USE = 1


def _offered(registers: Sequence[RegisterId]) -> bytes:
    mask = sum(1 << (number - FIRST_MANAGEMENT_REGISTER) for number in registers)
    return mask.to_bytes(16, "big")


def node_description(adapter: Adapter, data: bytes, write: bool) -> bytes:
    """Return the name of the node, which is InfiniBand's; it stays as it is."""
    return bytes(NODE_DESC.pack(text=NODE_DESCRIPTION.encode().ljust(64, b"\0")))


def host_endianness(adapter: Adapter, data: bytes, write: bool) -> bytes:
    """Take the byte order of the host, which must be little-endian."""
    if write and data[:1] and data[0]:
        raise Refused(Status.BAD_PARAM, "a big-endian host")
    return data


def mcam(adapter: Adapter, data: bytes, write: bool) -> bytes:
    """Return which management registers there are."""
    head = bytearray(data[: MCAM.size].ljust(MCAM.size, b"\0"))
    if MCAM.get(head, "access_reg_group") == 0:
        MCAM.set(head, "registers", _offered(MANAGEMENT_REGISTERS))
    return bytes(head)


def mcqs(adapter: Adapter, data: bytes, write: bool) -> bytes:
    """Return the state of a component of the firmware, of which there is one: the boot image."""
    head = data.ljust(MCQS.size, b"\0")
    if MCQS.get(head, "component"):
        raise Refused(Status.BAD_INDEX, f"component {MCQS.get(head, 'component')}")
    return bytes(MCQS.pack(last=1, identifier=BOOT_IMAGE, status=IN_USE))


def mcqi(adapter: Adapter, data: bytes, write: bool) -> bytes:
    """Return what is known of the boot image: its version."""
    head = bytearray(data[: MCQI.size].ljust(MCQI.size, b"\0"))
    if MCQI.get(head, "component"):
        raise Refused(Status.BAD_INDEX, f"component {MCQI.get(head, 'component')}")
    if MCQI.get(head, "info_type") != INFO_VERSION:
        raise Refused(Status.BAD_PARAM, f"MCQI info type {MCQI.get(head, 'info_type')}")
    major, minor, subminor = FIRMWARE
    text = f"{major}.{minor}.{subminor}".encode()
    version = MCQI_VERSION.pack(
        version_string_length=len(text),
        version=major << 24 | minor << 16 | subminor,
        version_string=text.ljust(92, b"\0"),
    )
    MCQI.set(head, "info_size", MCQI_VERSION.size)
    start = min(MCQI.get(head, "offset"), MCQI_VERSION.size)
    assert len(head) == MCQI_DATA_OFFSET
    return bytes(head) + bytes(version[start : start + MCQI.get(head, "data_size")])


REGISTERS: dict[int, Access] = {
    RegisterId.NODE_DESC: node_description,
    RegisterId.HOST_ENDIANNESS: host_endianness,
    RegisterId.MCAM: mcam,
    RegisterId.MCQS: mcqs,
    RegisterId.MCQI: mcqi,
}
