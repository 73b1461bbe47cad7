"""Runs a sweep: guests for each setting, all payloads one after the other."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.model import Model
from bluebridge.host_tools.errors import LabError, Progress
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import BEST, TYPICAL, WORST
from bluebridge.host_tools.study.journal import Journal
from bluebridge.host_tools.study.modelled import Watch
from bluebridge.host_tools.study.request import Row, SweepRequest, Wall

_SECONDS = 180.0

_LINES = 20
"""The lines that tell how far a whole sweep has come, about."""


class GuestProgram:
    """Measures payloads with `guest.perf` on a pair whose HCAs are bound to vfio-pci."""

    def __init__(self, pair: Pair, request: SweepRequest, setting: str) -> None:
        self._count = request.iterations
        words = (
            f"python3 -m bluebridge.guest.perf --blueflame {setting} --inline {request.inline} "
            f"--size {request.maximum}"
        )
        reading, writing = os.pipe()
        self._input = os.fdopen(reading, "rb", buffering=0)
        self._orders = os.fdopen(writing, "wb", buffering=0)
        self._server = pair.a.agent.start(f"{words} --serve")
        self._client = pair.b.agent.start(f"{words} --perftest -", stdin=self._input)
        self._output = self._client.output()

    def close(self) -> None:
        """End both programs."""
        self._orders.close()
        for program in (self._client, self._server):
            program.kill()
        self._input.close()

    def measure(self, size: int) -> Wall:
        """Measure one payload; return the figures of guest b, the client. Raises `LabError`."""
        self._orders.write(f"rc_rdma_write_lat {self._count} {size}\n".encode())
        said = ""
        for _, data in self._output:
            said += data.decode(errors="replace")
            if said.endswith("\n") and (row := perftest.last_row(said)):
                return _wall(row)
        last = said.strip().splitlines()[-1:] or ["nothing"]
        raise LabError(f"guest b: the measuring program ended and said: {last[0]}")


class Perftest:
    """Measures payloads with ib_write_lat on a pair whose kernels drive the HCAs."""

    def __init__(self, pair: Pair, request: SweepRequest) -> None:
        self._pair = pair
        self._request = request

    def close(self) -> None:
        """End the programs, so that nothing is left of a run."""

    def measure(self, size: int) -> Wall:
        """Measure one payload. Raises `LabError` when the program fails or finds no clock."""
        words = f"ib_write_lat -d mlx4_0 -s {size} -n {self._request.iterations}"
        words += f" -I {self._request.inline}"
        row = perftest.figures(self._pair, words, ADDRESSES[0].partition("/")[0], _SECONDS)
        return _wall(row)


def _wall(row: Sequence[float]) -> Wall:
    return Wall(row[TYPICAL], row[BEST], row[WORST])


def measure(
    request: SweepRequest,
    journal: Journal,
    models: Mapping[str, Model],
    progress: Progress,
    log: Path | None,
) -> None:
    """Measure the rows that the journal lacks, and add each to it. Raises `LabError`."""
    total = len(request.settings) * len(request.sizes)
    for setting, sizes in journal.todo():
        progress(f"BlueFlame {setting}: {len(sizes)} payloads")
        config = _config(request, setting, log)
        with Pair(config, progress) as pair, contextlib.ExitStack() as stack:
            tool: Perftest | GuestProgram
            if request.tool == "perftest":
                tool = Perftest(pair, request)
            else:
                tool = GuestProgram(pair, request, setting)
            stack.callback(tool.close)
            watch = Watch(pair.logs / "bus", models)
            for size in sizes:
                watch.begin()
                wall = tool.measure(size)
                modelled = watch.end(size, 2 * request.iterations)
                row = Row(setting, size, wall, modelled.path, modelled.times)
                journal.add(row)
                done = len(journal.rows)
                if done == total or done % max(1, total // _LINES) == 0:
                    text = f"BlueFlame {setting}, {size} bytes: {wall.typical:.1f} us"
                    progress(f"{done} of {total}: {text}")


def _config(request: SweepRequest, setting: str, log: Path | None) -> LabConfig:
    advertised = "off" if setting == "off" else "on"
    if log is not None:  # a sweep that goes on does not write over what it had
        names = chain([setting], (f"{setting}-{number}" for number in count(2)))
        log = next(path for name in names if not (path := log.absolute() / name).exists())
    return LabConfig(
        log=log,
        kernel=request.tool == "perftest",
        options=ServerOptions(blueflame=advertised, blueflame_size=request.register),
    )
