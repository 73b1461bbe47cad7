"""The dissector shows damaged and cut packets as what they are, without an error of Lua."""

from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path
from struct import pack_into

import pytest

from bluebridge.device.layout.pcie.pseudo_header import DISSECTOR
from bluebridge.device.packets.carriers import Frame
from bluebridge.device.packets.exported_pdu import tags
from bluebridge.host_tools.analyzer.pcap.dissector import NAME
from bluebridge.host_tools.analyzer.pcap.pcapng_reader import packets
from bluebridge.host_tools.analyzer.pcap.pcapng_writer import PcapngWriter
from tests.tshark import tshark

HOUSE = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("tlp_sample.pcapng")
DISSECTED = HOUSE / "host_tools" / "analyzer" / "pcap" / NAME
BEFORE = len(tags(DISSECTOR))
"""Bytes of a packet that belong to the exported PDU: with others the dissector is not called."""
LENGTHS = (1, 6)
"""Where the pseudo-header has its own length and that of the name."""


def _changed(data: bytes, chosen: random.Random) -> bytes:
    """A packet with some bytes changed, lengths more often than others, perhaps cut."""
    found = bytearray(data)
    for _ in range(chosen.choice((0, 1, 1, 4))):
        at = chosen.choice((*LENGTHS, chosen.randrange(len(data) - BEFORE), 52, 56, 60))
        value = chosen.choice((0, 0xFF, chosen.randrange(256), 52, 56, 60))
        if BEFORE + at < len(data):
            pack_into("B", found, BEFORE + at, value)
    cut = chosen.random() < 0.3
    return bytes(found[: chosen.randrange(BEFORE, len(data))] if cut else found)


def _mutated(file: Path, seed: int) -> int:
    """Write the sample twenty times with changed packets; how many packets that are."""
    chosen, count = random.Random(seed), 0
    with file.open("wb") as stream:
        writer = PcapngWriter(stream)
        for _ in range(20):
            for one in packets(BytesIO(SAMPLE.read_bytes())):
                data = _changed(one.data, chosen)
                writer.write(one.interface, count, Frame(one.link, data, one.length))
                count += 1
    return count


@pytest.mark.parametrize("seed", range(3))
def test_mutated_packets_are_no_error_of_lua(tmp_path: Path, seed: int) -> None:
    file, home = tmp_path / "file", str(tmp_path)
    count = _mutated(file, seed)
    names = ("frame.number", "_ws.lua.error", "_ws.malformed", "_ws.col.Protocol", "_ws.expert")
    wanted = [word for name in names for word in ("-e", name)]
    script = ("-X", f"lua_script:{DISSECTED}")
    env = {"HOME": home, "XDG_CONFIG_HOME": home}
    text = tshark("-n", "-2", *script, "-r", file, "-T", "fields", *wanted, env=env)
    rows = [line.split("\t") for line in text.splitlines()]
    assert len(rows) == count
    assert {(error, malformed) for _, error, malformed, *_ in rows} == {("", "")}
    whole = [row for row in rows if row[3:] == ["PCIe", ""]]
    marked = [row for row in rows if row[3] == "PCIe" and row[4]]
    assert whole and marked
