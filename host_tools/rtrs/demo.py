"""`bluebridge rtrs demo`: a mapped device under fio while a path is cut and restored."""

from __future__ import annotations

import argparse
import threading
import time

from bluebridge.guest.providers import HCA
from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab.config import KERNEL, PYTHON
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.rtrs.fio import Verification
from bluebridge.host_tools.rtrs.session import Cut, Cutter, Mapped, interrupt, session
from bluebridge.printable import printable_lines

_SECTOR = 512
_MIB = 1 << 20
_READS, _READ_SECTORS, _WRITES, _WRITTEN_SECTORS = 0, 2, 4, 6
"""Fields of the file: Linux Documentation/block/stat.rst."""

_LOOK_SECONDS = 1.0
SHORTEST_SECONDS = 6.0


class Rate:
    """The rate of a block device since the last call of `line`."""

    def __init__(self, machine: Vm, device: str) -> None:
        self._machine = machine
        self._file = f"/sys/block/{device.rpartition('/')[2]}/stat"
        self._before = self._read()
        self._when = time.monotonic()

    def _read(self) -> list[int]:
        return [int(word) for word in self._machine.run(f"cat {self._file}").text.split()]

    def line(self) -> str:
        """Return the requests and MiB per second as a line of text."""
        now, when = self._read(), time.monotonic()
        seconds = when - self._when
        did = [new - old for new, old in zip(now, self._before, strict=True)]
        self._before, self._when = now, when
        requests = (did[_READS] + did[_WRITES]) / seconds
        mib = (did[_READ_SECTORS] + did[_WRITTEN_SECTORS]) * _SECTOR / _MIB / seconds
        return f"{requests:5.0f} requests/s, {mib:5.1f} MiB/s"


def main(options: argparse.Namespace) -> int:
    """Run the demonstration; return 0 if fio found no error. Raises `LabError`."""
    progress = Reporter(quiet=options.quiet)
    seconds = max(SHORTEST_SECONDS, options.seconds)
    side = KERNEL if options.provider == HCA else PYTHON  # the kernel's does not know NTRDMA
    sides = options.sides or (side, PYTHON if options.hosts else side)
    with session(sides, options, options.log, progress, options.hosts or "") as mapped:
        _describe(mapped)
        found = Show(mapped, Cut(options.cut), seconds).run()
        _statistics(mapped)
        logs = mapped.pair.log_name
    print(f"\nthe log: bluebridge log {logs} --decode")
    if not found:
        raise LabError("fio found errors", f"read {logs}")
    return 0


def _describe(mapped: Mapped) -> None:
    config = mapped.pair.config
    assert config.rtrs is not None
    client, server = config.rtrs
    a, b = map(config.called, config.names)
    say(f"client: {client} in {a}; server: {server} in {b}")
    size = int(mapped.pair.a.run(f"blockdev --getsize64 {mapped.device}").text)
    say(f"{mapped.device} is mapped, {size >> 20} MiB, over {len(mapped.routes)} paths:")
    for route in mapped.routes:
        say(f"  {route.name} at port {route.port}" if route.port else f"  {route.name}: NTRDMA")


class Show:
    """A run of fio with a cut in the second third of its time, and a line for each second."""

    def __init__(self, mapped: Mapped, how: Cut, seconds: float) -> None:
        self._mapped = mapped
        self._seconds = seconds
        self._cutter = Cutter(mapped.pair.server.tell, how)
        self._begin = time.monotonic()
        self._over = threading.Event()

    def run(self) -> bool:
        """Run fio; returns whether it found no error."""
        say(f"fio for {self._seconds:.0f} s: random reads and writes, verified by crc32c")
        self._begin = time.monotonic()
        fio = Verification(self._mapped.pair.a, self._mapped.device, self._seconds)
        watcher = threading.Thread(target=self._watch, daemon=True)
        watcher.start()
        try:
            time.sleep(self._seconds / 3)
            interrupt(
                self._mapped,
                self._cutter,
                self._mapped.routes[-1],
                self._seconds / 3,
                self._begin + self._seconds,
                self._tell,
            )
            found = fio.finish()
        finally:
            self._over.set()
            watcher.join()
        say(
            f"fio: {found.read_rate:.1f} MiB/s read, {found.write_rate:.1f} MiB/s written, "
            f"I/O errors {found.io_errors}, verify errors {found.verify_errors}"
        )
        return found.ok

    def _watch(self) -> None:
        rate = Rate(self._mapped.pair.a, self._mapped.device)
        while not self._over.wait(_LOOK_SECONDS):
            try:
                paths = self._mapped.client.statistics()
                states = (f"{path.name.partition('@')[0]} {path.state}" for path in paths)
                self._tell(f"{rate.line()}; {', '.join(states)}")
            except LabError as error:
                self._tell(str(error))
                return

    def _tell(self, text: str) -> None:
        say(f"[{time.monotonic() - self._begin:5.1f} s] {text}")


def _statistics(mapped: Mapped) -> None:
    say(
        "\nstatistics of the client: reads, bytes, writes, bytes, under way, fail-overs; reconnects"
    )
    for path in mapped.client.statistics():
        say(f"  {path.name}: {_words(path.rdma)}; {_words(path.reconnects)}")
    paths = mapped.server.statistics()
    what = "reads, bytes, writes, bytes" if paths else "none, a host has no files of sessions"
    say(f"statistics of the server: {what}")
    for path in paths:
        say(f"  {path.name}: {_words(path.rdma)}")


def _words(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


def say(text: str) -> None:
    """Print a line of the demonstration."""
    print(printable_lines(text), flush=True)
