"""Tests of what a whole krping session left on the wire, read back from the capture."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.net.roce import PSN_MASK
from bluebridge.guest.protocols.krping.progress import ping_data
from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.analyzer.analysis.classify import transactions
from bluebridge.host_tools.analyzer.pcap.export import DISSECTOR_FILE
from bluebridge.host_tools.analyzer.pcap.tlp_packets import PURPOSES
from bluebridge.host_tools.analyzer.transaction import Role
from tests.models.capture_reader import Captured, Parsed, parse, read_file
from tests.models.server import devices
from tests.models.verbs.krping_contract import CLIENT_IP, SERVER_IP, both
from tests.tshark import tshark
from tests.wire.krping_pair import opened

SIZE, COUNT = 20000, 5
"""Several packets, the last of them padded to nothing but odd in length."""
READ, WRITE_FIRST, SEND_ONLY, ACK = 0x0C, 0x06, 0x04, 0x11
UD, GSI = 0x64, 1
REQ, REP, RTU, DREQ, DREP = 0x10, 0x13, 0x14, 0x15, 0x16


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bus log of a session with everything kept."""
    folder = tmp_path_factory.mktemp("pcap")
    with (
        devices(folder, "--capture", "100000"),
        opened(folder / "a", SERVER_IP) as a,
        opened(folder / "b", CLIENT_IP) as b,
    ):
        for run in both((a, b), f"count={COUNT},size={SIZE},validate"):
            assert run.result().ok
    yield folder / "log"


def _capture(log: Path, file: Path, *options: str) -> list[Captured]:
    parser = argparse.ArgumentParser()
    cli.add_arguments(parser)
    assert cli.main(parser.parse_args([str(log), "--pcap", str(file), *options])) == 0
    return read_file(file)


def _packets(frames: list[Captured]) -> list[tuple[str, Parsed]]:
    """The RDMA packets and whose they are."""
    return [(frame.interface, found) for frame in frames if (found := parse(frame)) is not None]


@pytest.mark.parametrize("options", [(), ("--roce", "v2")])
def test_every_packet_of_a_session_is_whole_and_right(
    session: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """The reader checks lengths, checksums and CRCs of each."""
    packets = _packets(_capture(session, tmp_path / "file", *options))
    assert len(packets) > 100
    assert all(packet.whole for _, packet in packets)
    assert {packet.network for _, packet in packets} == {"v2-ipv4" if options else "v1"}


def test_a_session_from_address_resolution_to_disconnection(session: Path, tmp_path: Path) -> None:
    frames = _capture(session, tmp_path / "file")
    arps = [frame for frame in frames if frame.data[12:14] == b"\x08\x06"]
    assert [frame.data[21] for frame in arps][-2:] == [1, 2]  # announced, then asked, answered
    mads = [packet.payload for _, packet in _packets(frames) if packet.target == GSI]
    assert [int.from_bytes(mad[16:18], "big") for mad in mads] == [REQ, REP, RTU, DREQ, DREP]
    assert all(len(mad) == 256 for mad in mads)


def test_sequence_numbers_follow_each_other(session: Path, tmp_path: Path) -> None:
    """Requests of a side, which nothing repeats here; a read takes those of its answer."""
    packets = [
        (side, packet)
        for side, packet in _packets(_capture(session, tmp_path / "file"))
        if packet.opcode < UD
    ]
    for side in "ab":
        expected: int | None = None
        for sender, packet in packets:
            if sender != side or READ < packet.opcode <= ACK:
                continue
            assert expected is None or packet.psn == expected
            taken = 1
            if packet.opcode == READ:
                length = int.from_bytes(packet.extensions["reth"][12:], "big")
                taken = -(-length // 1024)
            expected = packet.psn + taken & PSN_MASK


def test_the_data_of_reads_and_writes(session: Path, tmp_path: Path) -> None:
    """The server reads what the client shows and writes it back: the same bytes both ways."""
    packets = _packets(_capture(session, tmp_path / "file"))
    read, written = b"", b""
    for _, packet in packets:
        if READ < packet.opcode < ACK:
            read += packet.payload
        elif WRITE_FIRST <= packet.opcode < READ:
            written += packet.payload
    assert read == written
    assert read == b"".join(ping_data(number, SIZE) for number in range(COUNT))


def test_each_side_begins_with_the_number_the_other_one_named(
    session: Path, tmp_path: Path
) -> None:
    """REQ and REP say which PSN their sender expects (Linux core/cm.c: rq_psn)."""
    packets = _packets(_capture(session, tmp_path / "file"))
    named = {}
    for side, packet in packets:
        mad = packet.payload
        if packet.target == GSI and int.from_bytes(mad[16:18], "big") in (REQ, REP):
            place = 24 + (44 if mad[17] == REQ else 20)
            named[side] = int.from_bytes(mad[place : place + 3], "big")
    first: dict[str, int] = {}
    for side, packet in packets:
        if packet.opcode <= READ:
            first.setdefault(side, packet.psn)
    assert first == {"a": named["b"], "b": named["a"]}


def test_wires_and_buses_of_a_session_in_wireshark(session: Path, tmp_path: Path) -> None:
    """No warning, and as many packets of each kind as the log has accesses for it."""
    file = tmp_path / "file"
    script = files("bluebridge.host_tools.analyzer.pcap") / DISSECTOR_FILE
    _capture(session, file, "--tlp")
    known = "--disable-protocol rpcordma --disable-protocol infiniband.eoib"
    names = (
        "_ws.col.Protocol",
        "_ws.expert",
        "tlp.name",
        "bluebridge.purpose",
        "bluebridge.offset",
    )
    wanted = [word for name in names for word in ("-e", name)]
    words = ("-X", f"lua_script:{script}", "-r", file, *known.split(), "-T", "fields", *wanted)
    rows = [line.split("\t") for line in tshark(*words).splitlines()]
    assert {protocol for protocol, *_ in rows} >= {"PCIe", "RoCE", "ARP"}
    assert not any(expert for _, expert, *_ in rows)
    first = Counter(
        purpose for *_, name, purpose, offset in rows if offset == "0" and name[:3] != "Cpl"
    )
    roles = Counter(one.role for one in transactions(LogReader(session)))
    assert roles[Role.DOORBELL] + roles[Role.BLUEFLAME] > COUNT
    for role in (Role.DOORBELL, Role.WQE, Role.PAYLOAD_READ, Role.PAYLOAD_WRITE, Role.CQE):
        assert first[str(PURPOSES[role].value)] == roles[role]
