"""The view of events: every event that passes the filters, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bluebridge.device.buslog.analysis.view import Options, View
from bluebridge.device.buslog.decode import decode
from bluebridge.device.buslog.event_lines import HEADER, json_line, table_line
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.buslog.rtrs.decoder import decoder_of


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    if not options.json:
        yield HEADER if options.decoded else HEADER.removesuffix(" decoded").rstrip()
    line = json_line if options.json else table_line
    words = decoder_of(reader, options.wanted) if options.decoded else decode
    for event in islice(reader.events(options.wanted), options.limit):
        yield line(event, decoded=options.decoded, words=words)


VIEW = View("events", "every event", _lines, event_options=True, event_filters=True)
