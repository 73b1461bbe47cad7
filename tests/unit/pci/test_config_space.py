"""Configuration space of an HCA, as a guest walks it."""

from __future__ import annotations

import pytest

from bluebridge.device.layout import pci as layout
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.pci.capabilities import Express, MsiX, PowerManagement
from bluebridge.device.pci.config_space import EndpointConfig, compose
from bluebridge.device.server.process import BARS, CONNECTX3


@pytest.fixture
def config() -> EndpointConfig:
    msix = MsiX(32, 0, bar0.MSIX_TABLE_OFFSET, bar0.MSIX_PBA_OFFSET)
    return compose(CONNECTX3, BARS, (PowerManagement(), msix, Express()))


def _capabilities(config: EndpointConfig) -> dict[int, int]:
    """Identifier → offset, by walking the chain."""
    found = {}
    offset = layout.HEADER.get(config.data, "capabilities")
    while offset:
        assert offset % 4 == 0
        assert config.data[offset] not in found
        found[config.data[offset]] = offset
        offset = config.data[offset + 1]
    return found


def test_identity(config: EndpointConfig) -> None:
    header = layout.HEADER.unpack(config.data)
    assert (header["vendor"], header["device"]) == (0x15B3, 0x1003)
    assert header["class_code"] == bytes((0, 0, 2))
    assert int(header["status"]) & 0x10


def test_the_chain_of_capabilities(config: EndpointConfig) -> None:
    found = _capabilities(config)
    assert set(found) == {layout.CAP_ID_PM, layout.CAP_ID_MSIX, layout.CAP_ID_EXPRESS}
    msix = config.data[found[layout.CAP_ID_MSIX] :]
    assert layout.MSIX_CAPABILITY.get(msix, "table_size") == 31
    assert layout.MSIX_CAPABILITY.get(msix, "table") == bar0.MSIX_TABLE_OFFSET
    express = config.data[found[layout.CAP_ID_EXPRESS] :]
    assert layout.EXPRESS_CAPABILITY.get(express, "link_speed") == 3
    assert layout.EXPRESS_CAPABILITY.get(express, "link_width") == 8


@pytest.mark.parametrize(("offset", "size", "low"), [(0x10, 1 << 20, 0x4), (0x18, 16 << 20, 0xC)])
def test_a_bar_tells_its_size(config: EndpointConfig, offset: int, size: int, low: int) -> None:
    config.write(offset, b"\xff" * 8)
    value = int.from_bytes(config.read(offset, 8), "little")
    assert value & 0xF == low
    assert (~(value & ~0xF) & (1 << 64) - 1) + 1 == size


def test_read_only_registers_take_writes_and_stay(config: EndpointConfig) -> None:
    before = config.read(0, 4)
    config.write(0, b"\0\0\0\0")
    assert config.read(0, 4) == before


def test_reset_restores_what_software_changed(config: EndpointConfig) -> None:
    before = bytes(config.data)
    config.write(0x04, b"\x06\x00")
    assert bytes(config.data) != before
    config.reset()
    assert bytes(config.data) == before
