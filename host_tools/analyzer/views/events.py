"""The view of events: every event that passes the filters, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.analyzer import rtrs
from bluebridge.host_tools.analyzer.decode import decode
from bluebridge.host_tools.analyzer.event_lines import (
    HEADER,
    NARROW_HEADER,
    Describe,
    json_line,
    narrow_line,
    table_line,
)
from bluebridge.host_tools.analyzer.ntrdma import decoder as ntrdma
from bluebridge.host_tools.analyzer.views.view import Options, View


def _lines(reader: LogReader, options: Options) -> Iterator[str]:
    narrow = options.decoded and options.width is not None and options.width < len(HEADER) + 40
    if not options.json:
        header = NARROW_HEADER if narrow else HEADER
        yield header if options.decoded else header.removesuffix(" decoded").rstrip()
    line = json_line if options.json else narrow_line if narrow else table_line
    words: Describe = decode
    if options.decoded:
        wanted = options.wanted
        words = ntrdma.decoder_of(reader, wanted, rtrs.decoder_of(reader, wanted))
    for event in islice(reader.events(options.wanted), options.limit):
        yield line(event, decoded=options.decoded, words=words)


VIEW = View("events", "every event", _lines, event_options=True, event_filters=True)
