"""The compiled formats of the hot paths say what the tables say: packed by one, read by the other.

Each row names, for every value of a format in order, the field of the table that it is, or the
word, as a bit mask, whose fields it carries together.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest

from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.mlx4 import cqe, wqe
from bluebridge.device.layout.mlx5 import wqe as mlx5_wqe
from bluebridge.device.layout.net import ip, roce
from bluebridge.device.mlx4.rings import completions
from bluebridge.device.mlx4.rings import work_requests as device_wqe
from bluebridge.device.packets import forms
from bluebridge.device.rings import receive_ring
from bluebridge.guest.drivers.common import shared_receives as guest_srq
from bluebridge.guest.drivers.hca.posting import wqe as guest_wqe
from bluebridge.guest.drivers.hca.queues import cq as guest_cq

Name = str | tuple[str, ...]
"""A field, or all fields of one word."""


class Row(NamedTuple):
    """A format, its table, the fields its values are; the format begins `base` bytes into it."""

    name: str
    form: struct.Struct
    table: Struct
    names: tuple[Name, ...]
    base: int = 0


_WORD1 = ("vlan_tag", "insert_vlan", "fence", "ds")
_FLAGS = ("srcrb", "strong_order", "tcp_udp_csum", "ip_csum", "cqe", "solicited", "loopback")
_OWNER = ("owner", "is_send", "opcode")
_FAST = ("flags", "key", "page_list", "start", "length", "offset", "page_shift")
_MASKED = ("swap_add", "compare", "swap_mask", "compare_mask")
_DATA = ("byte_count", "lkey", "va")
_HEAD: tuple[Name, ...] = ("qpn", "immediate", ("grh", "remote_qpn"))
_ERROR: tuple[Name, ...] = ("qpn", "wqe_index", "vendor_syndrome", "syndrome", _OWNER)
_AV_TO_FLOW = ("sl", "tclass", "flow_label")

ROWS = [
    Row("ctrl", device_wqe.CTRL, wqe.CTRL, (("owner", "opcode"), _WORD1, _FLAGS, "immediate")),
    Row("raddr", device_wqe.RADDR, wqe.RADDR, ("va", "rkey")),
    Row("atomic", device_wqe.ATOMIC, wqe.ATOMIC, ("swap_add", "compare")),
    Row("masked", device_wqe.MASKED_ATOMIC, wqe.MASKED_ATOMIC, _MASKED),
    Row("data", receive_ring.SEGMENT, wqe.DATA, _DATA),
    Row("data of a ConnectX-5", receive_ring.SEGMENT, mlx5_wqe.DATA, _DATA),
    Row(
        "datagram", device_wqe.DATAGRAM, wqe.DATAGRAM, ("av", "dqpn", "qkey", "vlan", "dmac")
    ),
    Row("fast reg", device_wqe.FAST_REG, wqe.FAST_REG, _FAST),
    Row("completion", completions.CQE, cqe.CQE, (*_HEAD, "byte_count", "wqe_index", _OWNER)),
    Row("completion of a datagram", completions.DATAGRAM_CQE, cqe.CQE, (
        *_HEAD, "sl_vid", "smac", "byte_count", "wqe_index", "checksum", _OWNER,
    )),
    Row("completion of a frame", completions.FRAME_CQE, cqe.FRAME_CQE, (
        ("cvlan_present", "svlan_present", "qpn"), "rss_hash", "vlan_tag", "status",
        "ipv6_extensions", "bad_fcs", "byte_count", "wqe_index", "checksum", ("owner", "opcode"),
    )),
    Row("error", completions.ERROR_CQE, cqe.ERROR_CQE, _ERROR),
    Row("guest sent", guest_cq.SENT, cqe.CQE, ("qpn", "byte_count", "wqe_index")),
    Row("guest ctrl", guest_wqe.CONTROL, wqe.CTRL, (_WORD1, _FLAGS, "immediate"), 4),
    Row("guest data", guest_srq.DATA, wqe.DATA, _DATA),
    Row("guest remote", guest_wqe.REMOTE, wqe.RADDR, ("va", "rkey")),
    Row("guest pair", guest_wqe.PAIR, wqe.ATOMIC, ("swap_add", "compare")),
    Row("guest four", guest_wqe.FOUR, wqe.MASKED_ATOMIC, _MASKED),
    Row("guest invalidate", guest_wqe.LOCAL_INV, wqe.LOCAL_INVAL, ("key",)),
    Row("guest fast reg", guest_wqe.FAST_REG, wqe.FAST_REG, _FAST),
    Row("guest srq next", guest_srq.NEXT, wqe.SRQ_NEXT, ("next_wqe_index",)),
    Row("grh", forms.GRH, roce.GRH, (
        ("version", "traffic_class", "flow_label"), "payload_length", "next_header", "hop_limit",
        "sgid", "dgid",
    )),
    Row("ipv6", forms.GRH, ip.IPV6, (
        ("version", "traffic_class", "flow_label"), "payload_length", "next_header", "hop_limit",
        "source", "destination",
    )),
    Row("ipv4", forms.IPV4, ip.IPV4, (
        ("version", "header_words"), "tos", "total_length", "identification",
        ("dont_fragment", "more_fragments", "fragment_offset"), "ttl", "protocol", "checksum",
        "source", "destination",
    )),
    Row("udp", forms.UDP, ip.UDP, ("source_port", "destination_port", "length", "checksum")),
    Row("bth", forms.BTH, roce.BTH, (
        "opcode", ("solicited", "migrated", "pad", "version"), "pkey", "dest_qpn",
        ("ack_request", "psn"),
    )),
    Row("deth", forms.DETH, roce.DETH, ("qkey", "source_qpn")),
]  # fmt: skip
"""Formats whose table is the whole of them."""


def _filled(table: Struct, names: tuple[Name, ...], seed: int) -> tuple[bytes, list[int | bytes]]:
    """A structure whose named fields all differ, and the values of the format."""
    data = bytearray(table.size)
    values: list[int | bytes] = []
    for number, name in enumerate(names):
        word = 0
        for part in (name,) if isinstance(name, str) else name:
            item = table.field(part)
            count = seed + 37 * number + 5 * len(part)
            if item.raw:
                content = bytes((count + index) & 0xFF for index in range(item.width))
                table.set(data, part, content)
                values.append(content)
                break
            value = (count * 0x9E3779B97F4A7C15) & item.mask or item.mask
            table.set(data, part, value)
            # a word's fields may be cut from words of different width: align them at its end
            last = max(table.field(other).offset + table.field(other).width for other in _all(name))
            word |= value << (item.low + 8 * (last - item.offset - item.width))
        else:
            values.append(word)
    return bytes(data), values


def _all(name: Name) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) else name


@pytest.mark.parametrize("seed", [1, 77])
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_format_and_its_table_agree(row: Row, seed: int) -> None:
    data, values = _filled(row.table, row.names, seed)
    assert list(row.form.unpack_from(data, row.base)) == values
    assert row.base + row.form.size <= row.table.size
    packed = bytes(row.base) + row.form.pack(*values)
    assert packed.ljust(row.table.size, b"\0") == data


def test_a_guests_entries_that_are_packed_in_one_step() -> None:
    control, first = _filled(wqe.CTRL, (_WORD1, _FLAGS, "immediate"), 6)
    remote, second = _filled(wqe.RADDR, ("va", "rkey"), 3)
    data, third = _filled(wqe.DATA, _DATA, 9)
    rest = control[4:]
    assert list(guest_wqe.SEND_ENTRY.unpack(rest + data)) == first + third
    assert list(guest_wqe.RDMA_ENTRY.unpack(rest + remote + data)) == first + second + third
    inline = guest_wqe.INLINE_BIT | 28
    payload = bytes(range(28))
    entry = rest + remote + inline.to_bytes(4, "big") + payload
    found = list(guest_wqe.RDMA_INLINE_ENTRY.unpack(entry))
    assert found == [*first, *second, inline, payload]


def test_a_guests_datagram() -> None:
    names: tuple[Name, ...] = (
        ("force_loopback", "port", "pd"), "g_slid", "dlid", "gid_index", "static_rate",
        "hop_limit", _AV_TO_FLOW, "dgid",
    )  # fmt: skip
    av, first = _filled(wqe.AV, names, 5)
    first.insert(1, 0)  # a reserved byte
    rest, second = _filled(wqe.DATAGRAM, ("dqpn", "qkey", "vlan", "dmac"), 8)
    assert list(guest_wqe.DATAGRAM.unpack(av + rest[len(av) :])) == first + second


def test_a_guests_completions() -> None:
    """A completion in error has the syndromes where others have the check sum."""
    data, values = _filled(cqe.CQE, (*_HEAD, "smac", "byte_count", "wqe_index"), 2)
    assert list(guest_cq.ENTRY.unpack(data))[: len(values)] == values
    data, values = _filled(cqe.ERROR_CQE, _ERROR, 4)
    found = guest_cq.ENTRY.unpack(data)
    assert [found[0], *found[5:]] == values
