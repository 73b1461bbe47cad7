"""The views of every event, and of transactions in the columns of the study's figures 4.5 and 4.6.

`102/1` is the port of transactions from the adapter to its host, `104/1` of those to the adapter,
as in the figures: reads by the adapter are in the first column, their completions in the second.
Lengths are in words of 4 bytes, in hexadecimal. Other columns: address, bytes, microseconds since
the transaction before, and what the register or the structure says. With `--tree` its fields
follow by name, with the page of the register reference that has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout import reference
from bluebridge.host_tools.analyzer import event_lines, rtrs
from bluebridge.host_tools.analyzer.analysis.classify import transactions
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import NamedField, named_fields
from bluebridge.host_tools.analyzer.ntrdma.decoder import decoder_of
from bluebridge.host_tools.analyzer.outcomes import failed, polling
from bluebridge.host_tools.analyzer.transaction import Tlp, Transaction, split
from bluebridge.host_tools.analyzer.views import view
from bluebridge.host_tools.analyzer.views.view import Options, View

UPSTREAM, DOWNSTREAM = "102/1 to host: Type", "104/1 to device: Type"
SHOWN = 20
"""Bytes of data in a line at most."""
PIECES = 8
"""Requests above which a transaction is written as one line."""

DATA = f"{'data':64} "
HEADER = (
    f"{'event':>8} {'dev':3} {'timestamp':>16} {'delta us':>10}  {UPSTREAM:22} {DOWNSTREAM:22} "
    f"{'address':>18} {'bytes':>7} {'length':6} {DATA}{'for':27} decoded"
)
WIDE = len(HEADER) + 20
"""Columns that a terminal needs to have room for the data."""

Words = Callable[[Transaction], str]


Parts = Callable[[Transaction], Iterable[str]]


def lines(
    log: Iterable[Transaction], words: Words = lambda one: "", parts: Parts = lambda one: ()
) -> Iterator[str]:
    """Write a line for each request and each completion on the bus, without the header.

    `words` and `parts` say what a transaction has, in its line and in lines that follow it.
    """
    before: float | None = None
    for one in log:
        if one.on_bus:
            delta = 0.0 if before is None else (one.time - before) * 1e6
            before = one.time
            yield from _rows(one, delta, words(one))
            yield from parts(one)


def _rows(one: Transaction, delta: float, decoded: str) -> Iterator[str]:
    reads, text = one.tlp is Tlp.MEMORY_READ, f"{one.purpose:27} {decoded}"
    if one.requests > PIECES:
        text = f"{one.purpose}, in {one.requests} pieces {decoded}"
        requests = completions = [one.length]
    else:
        requests = [*split(one.address, one.length, one.limit)] or [one.length]
        completions = [*split(one.address, one.length)]
    for at, length, data in _pieces(one, requests):
        yield _line(one, one.tlp, delta, at, length, b"" if reads else data, text)
        text, delta = "", 0.0
    for at, length, data in _pieces(one, completions if reads else []):
        yield _line(one, Tlp.COMPLETION, 0.0, at, length, data, "")


def _pieces(one: Transaction, lengths: list[int]) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    for length in lengths:
        yield at, length, bytes(one.data[at : at + length])
        at += length


def words(address: int, length: int) -> str:
    """Write a length in words of 4 bytes, as the analyzer does: `0 7C`."""
    count = (address % 4 + length + 3) // 4
    return f"{count >> 8:X} {count & 0xFF:02X}"


def _line(
    one: Transaction, tlp: Tlp, delta: float, at: int, length: int, data: bytes, text: str
) -> str:
    upstream = one.upstream != (tlp is Tlp.COMPLETION)
    first, second = (tlp.value, "") if upstream else ("", tlp.value)
    shown = "Data=" + bytes(data[:SHOWN]).hex(" ").upper() if data else ""
    return (
        f"{one.number:8} {one.device:3} {one.time * 1e6:13.3f} us {delta:10.3f}  {first:22} "
        f"{second:22} {_place(one, at):>18} {length:7} {words(one.address + at, length):6} "
        f"{shown:64} {text}"
    ).rstrip()


def _place(one: Transaction, at: int) -> str:
    if one.is_vector:
        return f"vector {one.address}"
    host = not one.upstream and one.tlp in (Tlp.MEMORY_READ, Tlp.MEMORY_WRITE)
    return f"BAR{one.bar}+{one.address + at:#x}" if host else f"{one.address + at:#x}"


class _Decoder:
    """Describes transactions by the events that they are made of."""

    def __init__(self) -> None:
        self._events: dict[int, Event] = {}

    def seen(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events, remembering each until its transaction is asked for."""
        for event in events:
            self._events[event.number] = event
            yield event

    def words(self, one: Transaction) -> str:
        """Describe the first event of a transaction, without repeating its role."""
        event = self._first(one)
        return "" if event is None or one.is_vector else decode(event)

    def fields(self, one: Transaction) -> list[tuple[str, NamedField]]:
        """Return the fields of the first event of a transaction with table and name of each."""
        event = self._first(one)
        found = () if event is None else named_fields(event)
        return [(f"{each.table.name}.{each.name}", each) for each in found]

    def parts(self, one: Transaction) -> Iterator[str]:
        """Write a line for each field that is not 0: name, value, meaning, where it is told."""
        for name, each in self.fields(one):
            page = reference.subjects()[id(each.table)]
            if each.value != "0":
                yield f"{'':12} {name:28} {each.value:>18}  {each.meaning} (registers-{page}.html)"

    def _first(self, one: Transaction) -> Event | None:
        for number in [each for each in self._events if each < one.number]:
            del self._events[number]
        return self._events.get(one.number)


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    decoder = _Decoder()
    found = transactions(decoder.seen(reader.events(options.wanted)))
    if options.json:
        rows = (_row(one, decoder, tree=options.tree) for one in found if one.on_bus)
        yield from map(json.dumps, islice(rows, options.limit))
        return
    shown_fields = decoder.parts if options.tree else lambda one: ()
    limited = islice(lines(found, decoder.words, shown_fields), options.limit)
    shown = chain([HEADER], limited)
    narrow = options.width is not None and options.width < WIDE
    at = HEADER.index(DATA)
    yield from (each[:at] + each[at + len(DATA) :] for each in shown) if narrow else shown


def _row(one: Transaction, decoder: _Decoder, *, tree: bool) -> view.Row:
    row = view.transaction(one) | {"decoded": decoder.words(one)}
    if tree:
        row["fields"] = {name: each.value for name, each in decoder.fields(one)}
    return row


VIEW = View("table", "a PCIe analyzer's table", _lines, event_filters=True, tree=True)


def _event_lines(reader: LogReader, options: Options) -> Iterator[str]:
    header, line = event_lines.HEADER, event_lines.table_line
    if options.decoded and options.width is not None and options.width < len(header) + 40:
        header, line = event_lines.NARROW_HEADER, event_lines.narrow_line
    if options.json:
        line = event_lines.json_line
    else:
        yield header if options.decoded else header.removesuffix(" decoded").rstrip()
    words: event_lines.Describe = decode
    if options.decoded:
        wanted = options.wanted
        words = decoder_of(reader, wanted, rtrs.decoder_of(reader, wanted))
    for event in islice(_chosen(reader.events(options.wanted), options), options.limit):
        yield line(event, decoded=options.decoded, words=words)


def _chosen(events: Iterable[Event], options: Options) -> Iterator[Event]:
    for event in events:
        if (failed(event) or not options.failed) and (options.polling or not polling(event)):
            yield event


EVENTS = View(
    "events",
    "every event",
    _event_lines,
    event_options=True,
    event_filters=True,
    failed=True,
    polling=True,
)
