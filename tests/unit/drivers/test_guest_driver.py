"""Tests of what the guest driver writes into memory, without a device."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bluebridge.device.layout.mlx4.capabilities import INIT_HCA, QUERY_DEV_CAP
from bluebridge.device.layout.mlx4.commands import Opcode
from bluebridge.device.layout.mlx4.contexts import MAP_ENTRY
from bluebridge.guest.bus.byte_order import swap32
from bluebridge.guest.bus.vfio import find_device
from bluebridge.guest.drivers.common.gid_table import link_local_gid
from bluebridge.guest.drivers.common.region_pages import MAX_PAGE_SHIFT, blocks_of
from bluebridge.guest.drivers.hca.posting.wqe import INLINE_BIT, write_inline
from bluebridge.guest.drivers.hca.queues.qp import transition
from bluebridge.guest.drivers.hca.resources import icm
from bluebridge.guest.drivers.hca.resources.commands import FirmwareError
from bluebridge.guest.drivers.hca.resources.memory_regions import key_of
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.verbs import VerbsError
from bluebridge.guest.verbs.enums import QpState

ENTRY_SIZES = {
    "rdmarc_entry": 32, "qpc_entry": 256, "aux_entry": 64, "altc_entry": 64, "eqc_entry": 64,
    "cqc_entry": 64, "srqc_entry": 64, "cmpt_entry": 64, "mtt_entry": 8, "dmpt_entry": 64,
}  # fmt: skip


def read_inline(data: bytes, offset: int) -> tuple[bytes, int]:
    """Return what a device makes of inline segments, by the rules of MLX4's WQE format."""
    payload = b""
    while offset + 4 <= len(data):
        word = int.from_bytes(data[offset : offset + 4], "big")
        if not word & INLINE_BIT:
            break
        length = word & ~INLINE_BIT
        assert (offset & 63) + 4 + length <= 64, "a chunk crosses a line"
        payload += data[offset + 4 : offset + 4 + length]
        offset = (offset + 4 + length + 15) & ~15
    return payload, offset


@given(st.binary(max_size=300), st.sampled_from([16, 32, 48, 64, 112]))
def test_inline_segments(payload: bytes, offset: int) -> None:
    data = memoryview(bytearray(1024))
    end = write_inline(data, offset, payload)
    assert end % 16 == 0
    assert read_inline(bytes(data), offset) == (payload, end)


@given(st.integers(0, (1 << 24) - 1))
def test_keys(number: int) -> None:
    assert key_of(number) >> 8 == number


@given(
    address=st.integers(0, 1 << 40),
    length=st.integers(1, 1 << 24),
    shift=st.sampled_from([12, 13, 20, 21, 30]),
    distance=st.integers(0, 1 << 12),
)
def test_blocks_of_a_region(address: int, length: int, shift: int, distance: int) -> None:
    """Every byte's IOVA translates to its address by the rule of the MTT."""
    iova = address + (distance << shift)
    blocks, found = blocks_of(address, length, iova)
    assert 12 <= found <= MAX_PAGE_SHIFT
    size = 1 << found
    assert len(blocks) == (iova + length - 1) // size - iova // size + 1
    for offset in (0, length // 2, length - 1):
        va = iova + offset
        block = blocks[(va >> found) - (iova >> found)]
        assert block % size == 0
        assert block + va % size == address + offset


def test_blocks_need_the_same_offset() -> None:
    with pytest.raises(VerbsError, match="page offset"):
        blocks_of(0x1000, 10, 0x1800)


def test_icm_layout() -> None:
    """Tables do not overlap and lie at multiples of their size."""
    cap = bytes(QUERY_DEV_CAP.pack(ENTRY_SIZES))
    tables = icm.tables_of(cap, icm.DEFAULT)
    bases, total = icm.layout_of(tables)
    end = 0
    for name, base in sorted(bases.items(), key=lambda item: item[1]):
        size = dict(tables)[name]
        assert base >= end
        assert base % size == 0
        end = base + size
    assert end <= total


def test_map_entries_cover_a_piece() -> None:
    class Memory:
        address = 0x40000000
        view = memoryview(bytearray(1 << 20))

        def free(self) -> None:
            """Nothing to give back."""

    piece = icm.Piece(0x123000000, Memory(), 1 << 20)
    position = 0
    for entry in icm.map_entries(piece):
        assert MAP_ENTRY.get(entry, "virtual") == piece.virtual + position
        assert MAP_ENTRY.get(entry, "page") << 12 == Memory.address + position
        position += 4096 << MAP_ENTRY.get(entry, "log_pages")
    assert position == 1 << 20


def test_init_hca_keeps_bases_that_share_words() -> None:
    data = INIT_HCA.pack(qpc_base=0x100000)
    INIT_HCA.set(data, "log_qps", icm.DEFAULT.log_qps)
    assert INIT_HCA.get(data, "qpc_base") == 0x100000 | icm.DEFAULT.log_qps


def test_transitions() -> None:
    assert transition(QpState.RESET, QpState.INIT) is Opcode.RST2INIT_QP
    assert transition(QpState.RTS, QpState.ERR) is Opcode.TOERR_QP
    assert transition(QpState.ERR, QpState.RESET) is Opcode.TORST_QP
    with pytest.raises(VerbsError, match="cannot go from RESET to RTS"):
        transition(QpState.RESET, QpState.RTS)
    with pytest.raises(VerbsError, match="cannot go from RESET to ERR"):
        transition(QpState.RESET, QpState.ERR)


def test_byte_order() -> None:
    assert swap32(0x01020304) == 0x04030201


def test_link_local_gid() -> None:
    gid = link_local_gid(bytes.fromhex("0002c9bb0001"))
    assert gid.hex() == "fe80000000000000" + "0202c9fffebb0001"


def test_errors_name_the_command() -> None:
    assert str(FirmwareError(Opcode.SW2HW_CQ, 3)) == (
        "command SW2HW_CQ failed: status 0x03 (BAD_PARAM)"
    )
    assert "unknown status" in str(FirmwareError(0x123, 0xEE))


def sysfs(folder: Path, driver: str | None, device: str = "0x1003") -> str:
    """A sysfs with one HCA and one other device."""
    for address, vendor, number in (("0000:00:01.0", "0x8086", "0x1237"),
                                    ("0000:01:00.0", "0x15b3", device)):  # fmt: skip
        path = folder / "bus/pci/devices" / address
        path.mkdir(parents=True)
        (path / "vendor").write_text(vendor + "\n")
        (path / "device").write_text(number + "\n")
    if driver:
        home = folder / "bus/pci/drivers" / driver
        home.mkdir(parents=True)
        (path / "driver").symlink_to(home)
    return str(folder)


@pytest.mark.parametrize("device", ["0x1003", "0x1007", "0x673c"])
def test_find_device(tmp_path: Path, device: str) -> None:
    """ConnectX-3, ConnectX-3 Pro, and what a guest sees that iPXE booted."""
    assert find_device(sysfs(tmp_path, "vfio-pci", device)) == "0000:01:00.0"


@pytest.mark.parametrize(
    ("driver", "text"),
    [("mlx4_core", "is not bound to vfio-pci"), (None, "is not bound to vfio-pci")],
)
def test_device_of_another_driver(tmp_path: Path, driver: str | None, text: str) -> None:
    with pytest.raises(DeviceError, match=text):
        find_device(sysfs(tmp_path, driver))


def test_no_device(tmp_path: Path) -> None:
    with pytest.raises(
        DeviceError,
        match="there is no PCI device 15b3:1003 or 15b3:1007 or 15b3:673c or 15b3:1017 in",
    ):
        find_device(str(tmp_path))
