"""Accesses of configuration space in words, against the spaces that the devices have."""

from __future__ import annotations

import pytest

from bluebridge.device.layout import pci
from bluebridge.device.layout.mlx4 import bar0
from bluebridge.device.layout.ntb import gen1 as gen1_layout
from bluebridge.device.pci.config_space import capabilities, compose
from bluebridge.device.server.adapters import CONNECTX3, CONNECTX3_BARS
from bluebridge.host_tools.analyzer.decode import config_text

HCA = capabilities(32, bar0.MSIX_TABLE_OFFSET, bar0.MSIX_PBA_OFFSET)


def test_every_function_has_its_capabilities_where_the_table_says() -> None:
    config = compose(CONNECTX3, CONNECTX3_BARS, HCA)
    found, offset = [], pci.HEADER.get(config.data, "capabilities")
    while offset:
        found.append((offset, config.data[offset]))
        offset = config.data[offset + 1]
    ids = (pci.CAP_ID_PM, pci.CAP_ID_EXPRESS, pci.CAP_ID_MSIX)
    assert found == list(zip(pci.CAPABILITIES, ids, strict=True))


@pytest.mark.parametrize(
    ("offset", "data", "text"),
    [
        (0x04, "0600", "Command memory=1 bus_master=1"),
        (0x00, "b3150310", "Vendor=0x15b3, Device=0x1003"),
        (0x10, "00000080", "BAR0=0x80000000"),
        (0x3D, "01", "Interrupt pin=0x1"),
        (0x9E, "1f80", "MSI-X message control table_size=0x1f enable=1"),
        (0x9F, "80", "part of MSI-X message control"),
        (0x44, "0b00", "PM control and status power_state=3 no_soft_reset=1"),
        (
            0x68,
            "10a8",
            "PCIe device control relaxed_ordering=1 no_snoop=1 max_read_request=2 initiate_reset=1",
        ),
        (0x100, "00000000", "extended config space 0x100"),
        (0xF0, "00", "config 0xf0"),
    ],
)
def test_words_of_an_access(offset: int, data: str, text: str) -> None:
    octets = bytes.fromhex(data)
    assert config_text(offset, octets, len(octets)) == text


@pytest.mark.parametrize(
    ("offset", "data", "text"),
    [
        (0xD4, b"\x11", "PPD=0x11"),
        (0xD0, b"\x14\x20", "primary BAR2 size=0x14, primary BAR4 size=0x20"),
        (0x1A2, b"\0\x20", "NTB link status=0x2000"),
        (0, bytes(4096), "whole config space"),
    ],
)
def test_a_bridge_of_the_first_generation_has_more(offset: int, data: bytes, text: str) -> None:
    assert config_text(offset, data, len(data), gen1_layout.USES.config) == text
