"""PCI Express packets in tshark: fields by the dissector; damaged and cut ones as what they are."""

from __future__ import annotations

import json
import random
import re
from io import BytesIO
from itertools import groupby
from pathlib import Path
from struct import pack_into
from typing import Any

import pytest

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.buslog.writer import FileLog
from bluebridge.device.fabric.messages import Request
from bluebridge.device.layout.pcie import BY_TYPE, DISSECTOR, PSEUDO_HEADER, Purpose
from bluebridge.device.packets.carriers import Frame
from bluebridge.device.packets.tlp import tags
from bluebridge.host_tools.analyzer.analysis.classify import transactions
from bluebridge.host_tools.analyzer.pcap.export import DISSECTOR_FILE, export, write_dissector
from bluebridge.host_tools.analyzer.pcap.pcapng import PcapngWriter, packets
from bluebridge.host_tools.analyzer.pcap.tlp_packets import PURPOSES
from bluebridge.host_tools.analyzer.transaction import Role, Tlp
from tests.models import bus_traffic, capture_traffic
from tests.models.tlp_reader import read_transactions
from tests.tshark import tshark

HOUSE = Path(__file__).parents[3]
SAMPLE = Path(__file__).with_name("tlp_sample.pcapng")
LIST = Path(__file__).with_name("tlp_sample.txt")
"""The sample as Wireshark lists it: captured and original length, source, destination, info."""
TROUBLE = "_ws.expert || _ws.malformed || _ws.lua.error"
SPECIFICATION = HOUSE / "docs" / "tlp-capture.md"


def _tshark(home: Path, *words: object) -> str:
    """Standard output of tshark, which has no settings and no plug-ins but those of `home`."""
    return tshark(*words, env={"HOME": str(home), "XDG_CONFIG_HOME": str(home)})


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A home without the dissector."""
    return tmp_path / "plain"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home where the dissector is installed as docs/tlp-capture.md says."""
    plugins = tmp_path / "home" / ".local" / "lib" / "wireshark" / "plugins"
    plugins.mkdir(parents=True)
    write_dissector(plugins / DISSECTOR_FILE, replace=False)
    return tmp_path / "home"


def _capture(folder: Path, file: Path) -> Path:
    with file.open("wb") as stream:
        export(LogReader(folder), Filter(), stream, buses=True)
    return file


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Every kind of access once."""
    bus_traffic.write_log(tmp_path / "log")
    return _capture(tmp_path / "log", tmp_path / "capture.pcapng")


def _fields(home: Path, capture: Path, *names: str, only: str = "") -> list[list[str]]:
    """Values of fields by packet, after both passes over the file."""
    wanted = [word for name in names for word in ("-e", name)]
    shown = ["-Y", only] if only else []
    text = _tshark(home, "-n", "-2", "-r", capture, "-T", "fields", *wanted, *shown)
    return [line.split("\t") for line in text.splitlines()]


def test_wiresharks_list(home: Path) -> None:
    columns = [f"_ws.col.{name}" for name in ("Source", "Destination", "Protocol", "Info")]
    rows = _fields(home, SAMPLE, "frame.cap_len", "frame.len", *columns)
    assert "".join("\t".join(row).rstrip() + "\n" for row in rows) == LIST.read_text()


def test_the_format_is_that_of_the_sample(capture: Path) -> None:
    """Captures that others have written stay readable: all but times is as it was."""
    then, now = (
        [(one.interface, one.link, one.length, one.data) for one in packets(BytesIO(raw))]
        for raw in (SAMPLE.read_bytes(), capture.read_bytes())
    )
    assert now == then


def test_without_the_dissector_it_opens_as_exported_packets(plain: Path, capture: Path) -> None:
    rows = _fields(plain, capture, "frame.protocols", "exported_pdu.prot_name")
    assert {tuple(row) for row in rows} == {("exported_pdu", "bluebridge.tlp")}
    assert len(rows) == len(LIST.read_text().splitlines())
    assert _tshark(plain, "-r", capture, "-Y", TROUBLE) == ""


def test_every_field_of_the_tables_is_a_field_of_wireshark(home: Path) -> None:
    known = {line.split("\t")[2] for line in _tshark(home, "-G", "fields").splitlines()}
    names = {"first_enables": "first_be", "last_enables": "last_be"}
    tables = {item.name for table in BY_TYPE.values() for item in table}
    assert {f"tlp.{names.get(name, name)}" for name in tables} <= known
    pseudo = {item.name for item in PSEUDO_HEADER} - {"reserved"} | {"function", "text"}
    assert {f"bluebridge.{name}" for name in pseudo} <= known


def test_a_packet_as_json(home: Path, capture: Path) -> None:
    found = json.loads(_tshark(home, "-r", capture, "-T", "json", "-Y", "bluebridge.purpose == 1"))
    layers: dict[str, Any] = found[0]["_source"]["layers"]
    assert len(found) == 1
    shell, tlp = layers["bluebridge.tlp"], layers["tlp"]
    assert shell["bluebridge.function"] == "a"
    assert shell["bluebridge.bar"] == "2"
    assert tlp["tlp.fmt"] == "0x00000003"
    assert tlp["tlp.address"] == f"{bus_traffic.BAR2 + 0x2014:#018x}"
    assert tlp["tlp.data"] == "00:00:48:00"
    assert int(tlp["bluebridge.bar_offset"], 0) == 0x2014


def test_requests_and_completions_name_each_other(home: Path, capture: Path) -> None:
    rows = _fields(home, capture, "frame.number", "tlp.request_in", "tlp.completion_in", "tlp.name")
    answers = {number: request for number, request, _, _ in rows if request}
    asked = {number: listed.split(",") for number, _, listed, _ in rows if listed}
    requests = [number for number, _, _, name in rows if name[:3] in ("MRd", "Cfg")]
    completions = [number for number, _, _, name in rows if name[:3] == "Cpl"]
    assert requests and completions
    assert list(asked) == requests
    assert list(answers) == completions
    assert all(number in asked[request] for number, request in answers.items())
    assert sum(map(len, asked.values())) == len(completions)


@pytest.mark.parametrize(
    "only",
    [
        "tlp.requester == 0 && tlp.tag == 1",
        "tlp.address == 0x100025003 && tlp.length == 128",
        'bluebridge.event == 0 && bluebridge.text == "function level reset"',
        'bluebridge.function == "b.dma" && tlp.type == 0x0a',
        "tlp.register == 0x18 && tlp.bytes == 4",
    ],
)
def test_filters_find(home: Path, capture: Path, only: str) -> None:
    assert _fields(home, capture, "frame.number", only=only)


def test_packets_of_buses_stand_between_those_of_the_wire(tmp_path: Path, home: Path) -> None:
    log = FileLog(tmp_path / "log", capture=8192)
    messages = [one for one in capture_traffic.everything() if isinstance(one, Request)][:3]
    for number, message in enumerate(messages):
        capture_traffic.send(log, [message])
        bus_traffic.adapter(log, number)
    log.close()
    file = _capture(tmp_path / "log", tmp_path / "file")
    rows = _fields(home, file, "frame.interface_name", "_ws.col.Protocol")
    turns = [protocol for protocol, _ in groupby(rows)]
    assert turns == [["a", "RoCE"], ["a PCIe", "PCIe"]] * len(messages)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_packets_without_a_warning(tmp_path: Path, home: Path, count: int) -> None:
    bus_traffic.write_log(tmp_path / "log", repeat=count // 50)
    file = _capture(tmp_path / "log", tmp_path / "file")
    names = ("_ws.expert", "_ws.lua.error", "_ws.malformed", "_ws.col.Protocol")
    wanted = [word for name in names for word in ("-e", name)]
    rows = _tshark(home, "-n", "-r", file, "-T", "fields", *wanted).splitlines()
    assert len(rows) >= count
    assert set(rows) == {"\t\t\tPCIe"}
    reader = LogReader(tmp_path / "log")
    shown = [one for one in transactions(reader.events(Filter())) if _is_shown(one.tlp, one.role)]
    with file.open("rb") as stream:
        assert list(read_transactions(stream, reader.meta["started_ns"])) == shown


def _is_shown(tlp: Tlp, role: Role) -> bool:
    return tlp is not Tlp.MESSAGE and role is not Role.ENTRY


def test_the_specification_has_the_tables() -> None:
    """Offsets, sizes and meanings of the pseudo-header, and the numbers of purposes."""
    text = SPECIFICATION.read_text()
    assert f"| {len(tags(DISSECTOR))} | tags of the exported PDU" in text
    assert f"| {PSEUDO_HEADER.size} | [pseudo-header]" in text
    for item in PSEUDO_HEADER:
        assert f"| {item.offset} | {item.width} | `{item.name}` |" in text
    for role, purpose in PURPOSES.items():
        assert f"| {purpose.value} | {role.value} |" in text


def test_the_dissector_has_the_words_of_the_views() -> None:
    source = (HOUSE / "host_tools" / "analyzer" / "pcap" / DISSECTOR_FILE).read_text()
    table = re.search(r"local PURPOSES = \{\n  \[0\] =(.*?)\n\}", source, re.DOTALL)
    assert table is not None
    words = re.findall(r'"([^"]+)"', table[1])
    roles = {purpose: role.value for role, purpose in PURPOSES.items()}
    assert words == [roles[purpose] for purpose in Purpose]


DISSECTED = HOUSE / "host_tools" / "analyzer" / "pcap" / DISSECTOR_FILE
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
