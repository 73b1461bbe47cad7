"""Runs a sweep: guests for each setting, all payloads one after the other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from bluebridge.device.server.options import ServerOptions
from bluebridge.host_tools.analyzer.model import Model
from bluebridge.host_tools.errors import LabError, Progress, understood
from bluebridge.host_tools.lab.config import ADDRESSES, LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs import perftest
from bluebridge.host_tools.programs.perftest import BEST, TYPICAL, WORST
from bluebridge.host_tools.study.journal import Journal
from bluebridge.host_tools.study.modelled import Watch
from bluebridge.host_tools.study.request import Row, SweepRequest, Wall

_LINE_SECONDS = 120.0


class Program:
    """One guest's latency program, and the lines that it prints."""

    def __init__(self, machine: Vm, words: str) -> None:
        reading, self._writing = os.pipe()
        self._input = os.fdopen(reading, "rb", buffering=0)
        self._command = machine.agent.start(words, stdin=self._input)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._name = machine.name
        self._said = b""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        rest = b""
        try:
            for stream, data in self._command.output():
                if stream == "stderr":
                    self._said += data
                    continue
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    self._lines.put(line)
        except LabError as error:
            self._said += str(error).encode()
        self._lines.put(None)

    def send(self, values: dict[str, Any]) -> None:
        """Send the program a line with a JSON object."""
        os.write(self._writing, json.dumps(values).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Return the program's next JSON object. Raises `LabError` when it ends or hangs."""
        try:
            line = self._lines.get(timeout=_LINE_SECONDS)
        except queue.Empty:
            raise LabError(f"guest {self._name}: the latency program hangs") from None
        if line is None:
            last = self._said.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            raise LabError(f"guest {self._name}: the latency program ended and said: {last[0]}")
        with understood(f"guest {self._name}: the latency program"):
            return dict(json.loads(line))

    def close(self) -> None:
        """End the program's input, hence the program; kill one that goes on."""
        os.close(self._writing)
        self._thread.join(5.0)
        if self._thread.is_alive():
            self._command.kill()
        self._input.close()


class GuestProgram:
    """Measures payloads on a pair whose HCAs are bound to vfio-pci."""

    def __init__(self, pair: Pair, request: SweepRequest, setting: str) -> None:
        self._count = request.iterations
        words = (
            f"python3 -m bluebridge.guest.latency --blueflame {setting} --inline {request.inline}"
        )
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._programs = [
                stack.enter_context(contextlib.closing(Program(machine, words)))
                for machine in pair.machines
            ]
            ends = [program.receive() for program in self._programs]
            for program, peer in zip(self._programs, reversed(ends), strict=True):
                program.send(peer)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """End both programs."""
        self._stack.close()

    def measure(self, size: int) -> Wall:
        """Measure one payload; return the figures of guest b, the client. Raises `LabError`."""
        server, client = self._programs
        asked = {"size": size, "count": self._count}
        server.send({**asked, "first": False})
        server.receive()  # ready: what the client sends now is of this payload
        client.send({**asked, "first": True})
        server.receive()
        return Wall(**{name: round(value, 2) for name, value in client.receive().items()})


_SECONDS = 180.0


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
        return Wall(row[TYPICAL], row[BEST], row[WORST])


_LINES = 20
"""The lines that tell how far a whole sweep has come, about."""


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
