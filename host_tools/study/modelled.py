"""The modelled time of a payload, from what its run left in the bus log.

The mean over all messages of the run, in both directions, is the payload's figure.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bluebridge.device.buslog.reader import Filter, LogReader
from bluebridge.device.layout.blueflame import LINE
from bluebridge.host_tools.analyzer.analysis import Transfer
from bluebridge.host_tools.analyzer.analysis.assembly import assembled
from bluebridge.host_tools.analyzer.model import Model
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.study.request import SweepRequest

_OPCODE = "RDMA_WRITE"
_PATIENCE = 10.0
"""The seconds in which the device server must have written out the events of a payload."""
_PAUSE = 0.1

_CONTROL = 16
_REMOTE = 16
_HEAD = 4
_UNIT = 16


@dataclass(frozen=True)
class Modelled:
    """The path by which the device got most of the entries, and microseconds by profile."""

    path: str
    times: dict[str, float]


class Watch:
    """Looks into the bus log of a lab that runs, payload by payload."""

    def __init__(self, folder: Path, models: Mapping[str, Model]) -> None:
        """`folder` is the log's, which must exist; `models` by the names that users gave."""
        self._folder = folder
        self._models = models
        self._began = 0.0

    def begin(self) -> None:
        """Note that all events from now on belong to the next payload."""
        started = int(LogReader(self._folder).meta["started_monotonic_ns"])
        self._began = (time.monotonic_ns() - started) / 1e9

    def end(self, size: int, messages: int) -> Modelled:
        """Return a payload's modelled time, once `messages` writes of `size` bytes are in the log.

        Raises `LabError` when the log holds fewer.
        """
        deadline = time.monotonic() + _PATIENCE
        while len(found := self._messages(size)) < messages:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the bus log holds {len(found)} writes of {size} bytes, not {messages}",
                    "the device server may be short of disk: read server.log",
                )
            time.sleep(_PAUSE)
        path = Counter(each.posted_by for each in found).most_common(1)[0][0]
        times = {
            name: round(statistics.fmean(model.latency(each) for each in found), 4)
            for name, model in self._models.items()
        }
        return Modelled(path.value, times)

    def _messages(self, size: int) -> list[Transfer]:
        reader = LogReader(self._folder)
        events = reader.events(Filter(since=self._began))
        return [
            each
            for each in assembled(events, reader.meta["devices"])
            if each.opcode == _OPCODE and each.length == size and each.status
        ]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A size at which the driver changes its way.

    `payload` is the largest one before the step, in bytes.
    """

    payload: int
    text: str


def entry_bytes(payload: int) -> int:
    """Return the length in bytes of an inline RDMA WRITE's entry, a multiple of 16."""
    place = _CONTROL + _REMOTE
    while payload > 0:
        piece = min(payload, LINE - place % LINE - _HEAD)
        place += _HEAD + piece
        payload -= piece
    return -(-place // _UNIT) * _UNIT


def lines(payload: int) -> int:
    """Return the number of lines of 64 bytes that the entry of an inline RDMA WRITE takes."""
    return -(-entry_bytes(payload) // LINE)


def blueflame_end(buffer: int, inline: int) -> int:
    """Return the largest payload that goes through BlueFlame; 0 if none does."""
    return max((each for each in range(inline + 1) if entry_bytes(each) <= buffer), default=0)


def thresholds(request: SweepRequest) -> list[Threshold]:
    """Return all steps within the sweep's range, in ascending order."""
    end = blueflame_end(request.buffer, request.inline)
    found = [
        Threshold(each, f"{lines(each) * LINE} B")
        for each in range(1, end)
        if lines(each) != lines(each + 1)
    ]
    if end < request.inline:
        found += [Threshold(end, "BlueFlame ends"), Threshold(request.inline, "inline ends")]
    else:
        found.append(Threshold(end, "BlueFlame and inline end"))
    return [each for each in found if request.minimum <= each.payload < request.maximum]
