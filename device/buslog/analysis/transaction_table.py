"""The view of transactions: the columns of the study's figures 4.5 and 4.6.

`102/1` is the port of transactions from the adapter to its host, `104/1` of those to the adapter,
as in the figures: reads by the adapter are in the first column, their completions in the second.
Lengths are in words of 4 bytes, in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from bluebridge.device.buslog.analysis import json_rows
from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction, split
from bluebridge.device.buslog.analysis.transaction_stream import transactions
from bluebridge.device.buslog.analysis.view import Options, View
from bluebridge.device.buslog.reader import LogReader

UPSTREAM, DOWNSTREAM = "102/1 : Type", "104/1 : Type"
SHOWN = 20
"""Bytes of data in a line, at most."""
PIECES = 8
"""A transaction of more requests than that is one line."""

HEADER = (
    f"{'event':>8} {'dev':3} {'timestamp':>16}  {UPSTREAM:22} {DOWNSTREAM:22} {'length':6} "
    f"{'data':64} for"
)


def lines(log: Iterable[Transaction]) -> Iterator[str]:
    """The table without its header: a line for each request and each completion on the bus."""
    for one in log:
        if one.on_bus:
            yield from _rows(one)


def _rows(one: Transaction) -> Iterator[str]:
    """The lines of a transaction; one of more than `PIECES` requests has one line."""
    reads, text = one.tlp is Tlp.MEMORY_READ, purpose(one)
    if one.requests > PIECES:
        text += f", in {one.requests} pieces"
        requests = completions = [one.length]
    else:
        requests = [*split(one.address, one.length, one.limit)] or [one.length]
        completions = [*split(one.address, one.length)]
    for at, length, data in _pieces(one, requests):
        size = words(one.address + at, length)
        yield _line(one, one.tlp, one.upstream, size, b"" if reads else data, text)
        text = ""
    for at, length, data in _pieces(one, completions if reads else []):
        size = words(one.address + at, length)
        yield _line(one, Tlp.COMPLETION, not one.upstream, size, data, "")


def _pieces(one: Transaction, lengths: list[int]) -> Iterator[tuple[int, int, bytes]]:
    """Offset, length and recorded data of each piece."""
    at = 0
    for length in lengths:
        yield at, length, bytes(one.data[at : at + length])
        at += length


def purpose(one: Transaction) -> str:
    """Role and object of the transaction in words."""
    if one.text:
        return one.text
    text = one.role.value
    if one.stores > 1:
        text += f", {one.stores} stores"
    if one.role in (Role.DOORBELL, Role.WQE, Role.PAYLOAD_READ, Role.PAYLOAD_WRITE):
        text += f" of QP {one.obj:#x}"
    elif one.is_vector:
        text += f", vector {one.address}"
    elif one.role in (Role.CQE, Role.CQ_ARM):
        text += f" of CQ {one.obj:#x}"
    elif one.role in (Role.EQE, Role.EQ_ARM):
        text += f" of EQ {one.obj}"
    return text


def words(address: int, length: int) -> str:
    """Length in words of 4 bytes, as the analyzer writes it: `0 7C`."""
    count = (address % 4 + length + 3) // 4
    return f"{count >> 8:X} {count & 0xFF:02X}"


def _line(
    one: Transaction, tlp: Tlp, upstream: bool, size: str, data: bytes | bytearray, text: str
) -> str:
    first, second = (tlp.value, "") if upstream else ("", tlp.value)
    shown = "Data=" + bytes(data[:SHOWN]).hex(" ").upper() if data else ""
    return (
        f"{one.number:8} {one.device:3} {one.time * 1e6:13.3f} us  {first:22} {second:22} {size:6} "
        f"{shown:64} {text}"
    ).rstrip()


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    found = transactions(reader.events(options.wanted))
    if options.json:
        on_bus = (json_rows.transaction(one) for one in found if one.on_bus)
        yield from map(json_rows.line, islice(on_bus, options.limit))
        return
    yield HEADER
    yield from islice(lines(found), options.limit)


VIEW = View("table", "a PCIe analyzer's table", _lines, event_filters=True)
