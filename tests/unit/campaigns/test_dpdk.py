"""DPDK's programs: what is packed for guests, what testpmd prints, the guests' own checks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bluebridge.images.recipes.guest_archives import PLUGINS, TESTPMD, DpdkRecipe, keep, lacking
from bluebridge.images.unpack import LIBRARIES
from tests.campaigns.conformance.in_guest_csum import COUNT, frame, is_right
from tests.campaigns.conformance.in_guest_rss import aligned
from tests.campaigns.conformance.session import DPDK, ROCE_V2
from tests.campaigns.conformance.suites import everything
from tests.campaigns.conformance.testpmd_steps import Counters, counters_of, per_queue

STATS = """show port stats 0
  ######################## NIC statistics for port 0  ########################
  RX-packets: 97536      RX-missed: 3          RX-bytes:  6242304
  RX-errors: 0
  RX-nombuf:  0
  TX-packets: 12         TX-errors: 1          TX-bytes:  768
testpmd>"""
STREAMS = """stop
  ------- Forward Stats for RX Port= 0/Queue= 0 -> TX Port= 0/Queue= 0 -------
  RX-packets: 9920           TX-packets: 0              TX-dropped: 0
  ------- Forward Stats for RX Port= 0/Queue= 3 -> TX Port= 0/Queue= 3 -------
  RX-packets: 9919           TX-packets: 0              TX-dropped: 0
"""
OWN, PEER = bytes.fromhex("0002c9bb0002"), bytes.fromhex("0002c9bb0001")


def test_counters_come_out_of_what_testpmd_prints() -> None:
    assert counters_of(STATS) == Counters(received=97536, missed=3, sent=12, refused=1)
    assert counters_of("testpmd>") is None
    assert per_queue(STREAMS) == {0: 9920, 3: 9919}


def test_datagrams_with_wrong_checksums_are_told_from_mended_ones() -> None:
    sent = bytearray(frame(PEER, OWN, 7))
    assert not is_right(bytes(sent))
    sent[24:26] = _checksum(sent[14:34], 10)
    assert not is_right(bytes(sent))
    size = len(sent) - 34
    pseudo = sent[26:34] + bytes((0, 17)) + size.to_bytes(2, "big")
    sent[40:42] = _checksum(pseudo + sent[34:], 12 + 6)
    assert is_right(bytes(sent) + bytes(6)), "padding is no part of the datagram"
    assert len({frame(PEER, OWN, number) for number in range(COUNT)}) == COUNT


def _checksum(raw: bytes | bytearray, at: int) -> bytes:
    """RFC 1071 over `raw` without the field at offset `at`."""
    raw = bytes(raw[:at]) + bytes(2) + bytes(raw[at + 2 :])
    raw += bytes(len(raw) & 1)
    total = sum(int.from_bytes(raw[n : n + 2], "big") for n in range(0, len(raw), 2))
    return (0xFFFF - (total % 0xFFFF or 0xFFFF)).to_bytes(2, "big")


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0x100, 0x101, 0x102, 0x103], [0x100, 0x101, 0x102, 0x103]),
        ([0x101, 0x102, 0x103, 0x104], []),
        ([0xFF, 0x104, 0x105, 0x106, 0x107], [0x104, 0x105, 0x106, 0x107]),
        ([0x100, 0x102, 0x101, 0x103], []),
        ([0x100, 0x101], []),
    ],
)
def test_a_table_needs_consecutive_numbers_from_a_multiple_of_its_size(
    numbers: list[int], expected: list[int]
) -> None:
    found = aligned([SimpleNamespace(wqn=number) for number in numbers], 4)
    assert [queue.wqn for queue in found] == expected


def test_the_archive_has_the_program_and_what_the_guest_lacks(tmp_path: Path) -> None:
    root, base = tmp_path / "root", tmp_path / "base"
    kept = [TESTPMD, f"{PLUGINS}/pmds/librte_net.so.1", f"{LIBRARIES}/librte_eal.so.1"]
    dropped = ["usr/bin/perl", "usr/share/doc/x", "etc/passwd", f"{LIBRARIES}/engines/x.so"]
    for name in (*kept, *dropped, f"{LIBRARIES}/libc.so.6", "usr/lib/systemd/x", "usr/lib64/ld.so"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    (base / LIBRARIES).mkdir(parents=True)
    (base / LIBRARIES / "libc.so.6").symlink_to("libc-2.41.so")
    keep(root, DpdkRecipe.kept)
    found = {path.relative_to(root).as_posix() for path in lacking(root, base)}
    assert found == set(kept)


def test_dpdk_runs_where_the_device_keeps_the_rules() -> None:
    programs = [choice for choice in everything() if choice[1].suite == "dpdk"]
    assert programs and all(setup is DPDK for setup, _ in programs)
    assert "log_num_mgm_entry_size=-1" in DPDK.before == ROCE_V2.before
