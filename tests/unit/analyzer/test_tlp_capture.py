"""`bluebridge log DIR --pcap FILE --tlp`: accesses as PCIe packets, and read back from them."""

from __future__ import annotations

import struct
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.buslog.reader import Filter, LogError, LogReader
from bluebridge.device.layout.pcie import Flags, Purpose, TlpType
from bluebridge.host_tools.analyzer.analysis.classify import transactions
from bluebridge.host_tools.analyzer.pcap.export import export
from bluebridge.host_tools.analyzer.pcap.pcapng import PcapngWriter, packets
from bluebridge.host_tools.analyzer.pcap.tlp_packets import PURPOSES, BarBases, BusPackets
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction
from bluebridge.host_tools.cli import main
from tests.models import bus_traffic, capture_traffic
from tests.models.tlp_reader import TlpPacket, read_transactions, tlp_packets
from tests.unit.analyzer.conftest import Run


def _captured(folder: Path, wanted: Filter | None = None, *, buses: bool = True) -> BytesIO:
    file = BytesIO()
    export(LogReader(folder), wanted or Filter(), file, buses=buses)
    file.seek(0)
    return file


def _on_buses(folder: Path) -> list[Transaction]:
    """The accesses of a log that a capture of buses shows."""
    return [
        one
        for one in transactions(LogReader(folder).events(Filter()))
        if one.tlp is not Tlp.MESSAGE and one.role is not Role.ENTRY
    ]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of every kind of access, and none of a wire."""
    bus_traffic.write_log(tmp_path / "log", repeat=2)
    return tmp_path / "log"


@pytest.mark.parametrize("capture", [0, 3, 64, 4096])
def test_every_field_of_every_access_comes_back(tmp_path: Path, capture: int) -> None:
    bus_traffic.write_log(tmp_path, repeat=3, capture=capture)
    started = LogReader(tmp_path).meta["started_ns"]
    assert list(read_transactions(_captured(tmp_path), started)) == _on_buses(tmp_path)


@given(
    st.sampled_from([Tlp.MEMORY_READ, Tlp.MEMORY_WRITE]),
    st.booleans(),
    st.integers(0, 1 << 40),
    st.integers(1, 9000),
    st.integers(0, 9000),
)
def test_any_access_comes_back(
    tlp: Tlp, upstream: bool, address: int, length: int, kept: int
) -> None:
    data = (bytes(range(251)) * 36)[: min(length, kept)]
    one = Transaction(
        7, 0.5, "a.ntb4", tlp, Role.TABLE, upstream, address, length, data, 3, 0, "", 9, 2
    )
    file = BytesIO()
    writer = PcapngWriter(file)
    for frame in BusPackets(BarBases()).packets(one):
        assert len(frame.data) <= frame.length
        writer.write("x", 500_000_000, frame)
    file.seek(0)
    assert list(read_transactions(file)) == [one]


def test_each_function_is_an_interface_and_packets_are_ordered_by_time(tmp_path: Path) -> None:
    capture_traffic.write_log(tmp_path, capture_traffic.everything())
    bus_traffic.write_log(tmp_path / "buses")
    found = list(packets(_captured(tmp_path / "buses")))
    assert {one.interface for one in found} == {"a PCIe", "b.ntb4 PCIe", "b.dma PCIe"}
    assert [one.time for one in found] == sorted(one.time for one in found)


def test_reads_are_cut_at_512_bytes_and_their_completions_at_256(log: Path) -> None:
    found = [one for one in tlp_packets(_captured(log)) if one.head["purpose"] == 4]
    first = [one for one in found if one.head["event"] == found[0].head["event"]]
    shown = [(one.kind, one.values["length"], one.values["tag"], len(one.payload)) for one in first]
    read, answer = TlpType.MEMORY_READ_64, TlpType.COMPLETION_DATA
    # 1024 bytes from 0x100025003 on, of which the log kept 256.
    assert shown == [
        (read, 128, 0, 0), (answer, 64, 0, 256), (answer, 64, 0, 3),
        (read, 128, 1, 0), (answer, 64, 1, 0), (answer, 64, 1, 0),
        (read, 1, 2, 0), (answer, 1, 2, 0),
    ]  # fmt: skip
    assert [one.values["byte_count"] for one in first if one.kind is answer] == [
        509,
        256,
        512,
        256,
        3,
    ]


def test_bars_are_where_the_guest_put_them(log: Path) -> None:
    doorbell = _find(log, Purpose.DOORBELL)
    assert doorbell.address == bus_traffic.BAR2 + 0x2014
    assert doorbell.head["base"] == bus_traffic.BAR2
    assert doorbell.kind is TlpType.MEMORY_WRITE_64
    register = _find(log, Purpose.REGISTER_READ)
    assert register.address == 0x80698
    assert register.head["flags"] & Flags.ADDRESS_IS_OFFSET


def test_bars_are_known_although_their_events_are_left_out(log: Path) -> None:
    first = next(one.number for one in _on_buses(log) if one.role is Role.DOORBELL)
    found = list(tlp_packets(_captured(log, Filter(first=first))))
    assert found[0].address == bus_traffic.BAR2 + 0x2014


def test_an_interrupt_whose_message_is_unknown_has_no_data(log: Path) -> None:
    found = _find(log, Purpose.INTERRUPT)
    assert found.head["flags"] & Flags.ADDRESS_UNKNOWN
    assert (found.head["object"], found.address, found.payload) == (3, 0, b"")


def test_what_is_no_packet_is_a_text(log: Path) -> None:
    found = [one for one in tlp_packets(_captured(log)) if one.kind is None]
    assert [(Purpose(one.head["purpose"]).name, one.payload) for one in found[:4]] == [
        ("RESET", b"function level reset"),
        ("LINK", b"port 1: cable in, link up"),
        ("CONTROL", b"link a 1"),
        ("COMMAND", b"QUERY_FW op_mod=0 in_mod=0x0 in=0x0 OK 12 us"),
    ]


def test_a_log_without_a_wire_is_written_as_buses(log: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "file"
    status, _, said = run(log, "--pcap", file)
    accesses, found = len(_on_buses(log)), list(packets(BytesIO(file.read_bytes())))
    assert status == 0
    assert said.startswith(f"{file}: {len(found)} packets of {accesses} accesses of buses; of ")


def test_buses_beside_wires_are_asked_for(tmp_path: Path, run: Run) -> None:
    log, file = tmp_path / "log", tmp_path / "file"
    capture_traffic.write_log(log, capture_traffic.everything())
    run(log, "--pcap", file)
    assert {one.link for one in packets(BytesIO(file.read_bytes()))} == {1, 197}
    status, _, said = run(log, "--pcap", file, "--tlp")
    assert (status, said.count("\n")) == (2, 1)
    assert run(log, "--pcap", file, "--tlp", "--force")[0] == 0


def test_options_that_do_not_fit(log: Path, tmp_path: Path, run: Run) -> None:
    assert run(log, "--tlp") == (2, "", "bluebridge log: --tlp needs --pcap FILE\n")
    for words, why in (
        (["--limit", "3"], "--limit bounds rows, --pcap writes packets: use --from, --to or"),
        (["--format", "jsonl"], "--format is for what is printed, --pcap writes packets: drop one"),
        (["--profile", "system-x"], "--profile is for what is printed, --pcap writes"),
        (["--dissector", tmp_path / "y"], "--dissector and --pcap: one file at a time"),
    ):
        status, _, said = run(log, "--pcap", tmp_path / "x", *words)
        assert (status, said.count("\n")) == (2, 1)
        assert said.startswith(f"bluebridge log: {why}")
    status, _, said = run(log, "--pcap", tmp_path / "x", "--from", "1000")
    assert status == 2
    assert said.endswith("holds no message of the fabric and no access that passes the filters\n")


def test_the_dissector_is_written_without_a_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plugin.lua"
    assert main(["log", "--dissector", str(file)]) == 0
    assert f"-X lua_script:{file}" in capfd.readouterr().err
    assert "ProtoField" in file.read_text()
    assert main(["log", "--dissector", str(file)]) == 2
    assert "exists: name another file or add --force" in capfd.readouterr().err
    assert main(["log", "--dissector", str(file), "--force"]) == 0
    assert main(["log", "--dissector", "-"]) == 0
    assert capfd.readouterr().out == file.read_text()


@pytest.mark.parametrize(("user", "warned"), [(0, True), (1000, False)])
def test_root_is_told_that_wireshark_4_4_loads_no_script_of_a_user(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    warned: bool,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert main(["log", "--dissector", str(tmp_path / "plugin.lua")]) == 0
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert ("Global Lua Plugins" in said) == warned


def test_a_damaged_capture_is_refused(log: Path) -> None:
    whole = _captured(log).getvalue()
    for size in (5, 30, 200, len(whole) - 3):
        with pytest.raises(LogError):
            list(read_transactions(BytesIO(whole[:size])))
    cut = BytesIO()
    writer = PcapngWriter(cut)
    one = next(one for one in _on_buses(log) if one.role is Role.PAYLOAD_READ)
    for frame in list(BusPackets(BarBases()).packets(one))[:2]:
        writer.write("x", 0, frame)
    cut.seek(0)
    with pytest.raises(LogError, match=f"packets of event {one.number} are missing"):
        list(read_transactions(cut))


@given(st.data())
def test_any_bytes_are_accesses_or_an_error(data: st.DataObject) -> None:
    file = BytesIO()
    writer = PcapngWriter(file)
    cutter = BusPackets(BarBases())
    for tlp in (Tlp.MEMORY_READ, Tlp.CONFIG_WRITE, Tlp.NONE):
        one = Transaction(
            7, 0.5, "a", tlp, Role.OTHER, False, 0x40, 8, b"12345678", 0, 0, "12345678"
        )
        for frame in cutter.packets(one):
            writer.write("a PCIe", 0, frame)
    damaged = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    with suppress(LogError):
        list(read_transactions(BytesIO(damaged)))


def test_captures_of_other_writers_are_read() -> None:
    """Big-endian, in microseconds, with a block of an unknown kind."""

    def block(kind: int, body: bytes) -> bytes:
        return struct.pack(">II", kind, len(body) + 12) + body + struct.pack(">I", len(body) + 12)

    file = block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
    file += block(5, bytes(8)) + block(1, struct.pack(">HHI", 252, 0, 0))
    file += block(6, struct.pack(">IIIII", 0, 0, 1500, 2, 9) + b"ab\0\0")
    (only,) = packets(BytesIO(file))
    assert (only.link, only.time, only.data, only.length) == (252, 1_500_000, b"ab", 9)


def test_every_role_of_an_access_has_a_number() -> None:
    left_out = {Role.REQUEST, Role.RESPONSE, Role.ENTRY}
    assert {role for role in Role if role not in PURPOSES} == left_out
    assert len(PURPOSES) == len(Purpose)


def _find(log: Path, purpose: Purpose) -> TlpPacket:
    """The first packet for this purpose."""
    return next(one for one in tlp_packets(_captured(log)) if one.head["purpose"] == purpose)
