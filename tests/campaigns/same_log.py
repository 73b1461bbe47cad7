"""`python -m tests.campaigns.same_log REVISION`: whether a ConnectX-3 does the same as it did then.

A fixed script drives two adapters over their sockets: bring-up, memory regions, every operation of
RC and UC in several lengths, a failure, a link that goes down and up, a reset. It runs against
the device server of a revision and against that of this tree, interpreted, each from its own
checkout, and the bus logs are compared record by record: kind, device, BAR, address, length, data,
purpose, object and work request. Exit status 1 and the first records that differ unless they are
the same.

The log counts up to a mark behind the script: which connection the server sees end first is chance.
Masked are times of records, `us` of commands (how long one took), and the registers of the free
running clock. Nothing else is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.guest.drivers.hca.context import Context, open_hca
from bluebridge.guest.verbs import QpType, SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME
from tests.models.players import ONE_SIDED, PATTERN, SIZE, connected, fill, request_for

NAMES: Final = "ab"
LENGTHS: Final = (0, 1, 64, 1024, 1025, SIZE)
OK: Final = WcStatus.SUCCESS
INLINE: Final = 28
NO_KEY: Final = 0x1234
SHOWN: Final = 5
"""Records that differ, as many as are printed."""
DUMP: Final = """
import sys
from pathlib import Path
from bluebridge.device.buslog.reader import LogReader
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.mlx4.bar0 import CLOCK_OFFSET
for event in LogReader(Path(sys.argv[1])):
    data, told = event.data.hex(), event.told
    if told is not None and told.fact.name == "MARK":
        break
    if told is not None:
        data = told.fact.name, {**told.values, "us": 0} if "us" in told.values else told.values
    elif event.kind is Kind.MMIO_READ and event.address == CLOCK_OFFSET:
        data = "clock"
    print(event.kind.name, event.device, event.bar, hex(event.address), event.length, data,
          event.what.name, event.obj, hex(event.work))
"""
"""The program that prints a log, with the reader of the checkout that wrote it."""


def script(a: Context, b: Context, control: Path) -> None:
    """Do the same things in the same order, whatever serves the adapters."""
    for left, right in (connected(a, b), connected(a, a), connected(a, b, QpType.UC)):
        fill(left, right)
        for length in LENGTHS:
            right.receive()
            left.send(WrOpcode.SEND, [left.sge(0, length)])
            left.expect(OK)
            right.expect(OK)
            left.send(WrOpcode.RDMA_WRITE, [left.sge(0, length)], right)
            left.expect(OK)
    one, other = connected(a, b)
    for operation in ONE_SIDED:
        one.qp.post_send(request_for(operation, one, other))
        one.expect(OK)
    inline = SendWr(1, WrOpcode.RDMA_WRITE, inline_data=PATTERN[:INLINE])
    inline.remote_addr, inline.rkey = other.address, other.mr.rkey
    one.qp.post_send(inline)
    one.expect(OK)
    one.send(WrOpcode.RDMA_WRITE, [one.sge(0, 8)], other, rkey=NO_KEY)
    one.expect(WcStatus.REM_ACCESS_ERR)
    hardware.tell(control, "link a down")
    hardware.tell(control, "link a up")


def environment(tree: Path) -> dict[str, str]:
    """Return the environment in which Python finds the modules of a checkout, and no compiled."""
    library = os.environ.get(ENVIRONMENT) or str(Artefacts().libvfio_user())
    own = {"PYTHONPATH": str(tree), "BLUEBRIDGE_PURE": "1", "PYTHONHASHSEED": "0"}
    return {**os.environ, **own, ENVIRONMENT: library}


@contextmanager
def served(tree: Path, folder: Path) -> Iterator[None]:
    """Have the device server of a checkout serve two adapters in a folder."""
    words = ["--log", str(folder / "log"), "--control", str(folder / "control")]
    for number, name in enumerate(NAMES):
        mac = f"00:02:c9:bb:00:{number + 1:02x}"
        words += ["--hca", f"name={name},socket={folder / name},mac={mac}"]
    command = [sys.executable, "-m", "bluebridge.device", *words]
    with subprocess.Popen(
        command, cwd=tree, env=environment(tree), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            if server.stdout.readline().strip() != "ready":
                raise SystemExit(f"the device server of {tree} does not start")
            yield
        finally:
            server.terminate()


def records(tree: Path, folder: Path) -> list[str]:
    """Run the script against the server of a checkout; returns its log, a line for each record."""
    folder.mkdir()
    with served(tree, folder):
        buses = [SocketBus(folder / name) for name in NAMES]
        chances = (Random(seed) for seed in range(len(NAMES)))
        a, b = (open_hca(bus, chance=chance) for bus, chance in zip(buses, chances, strict=True))
        with a, b:
            script(a, b, folder / "control")
        hardware.tell(folder / "control", "mark end")
        for bus in buses:
            bus.close()
    dump = [sys.executable, "-c", DUMP, str(folder / "log")]
    done = subprocess.run(
        dump, cwd=tree, env=environment(tree), check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()


@contextmanager
def checkout(revision: str, folder: Path) -> Iterator[Path]:
    """Have a revision of this repository in a folder."""
    tree = folder / "tree"
    git = ["git", "-C", str(HOME), "worktree"]
    subprocess.run([*git, "add", "-q", "--detach", str(tree), revision], check=True)
    try:
        yield tree
    finally:
        subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main(words: Sequence[str] | None = None) -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision", help="of before, such as 9b36c7d4")
    options = parser.parse_args(words)
    with TemporaryDirectory() as folder, checkout(options.revision, Path(folder)) as tree:
        before = records(tree, Path(folder) / "before")
        after = records(HOME, Path(folder) / "after")
    pairs = enumerate(zip_longest(before, after))
    differ = [(number, *pair) for number, pair in pairs if pair[0] != pair[1]]
    for number, one, other in differ[:SHOWN]:
        print(f"record {number}\n  {options.revision}: {one}\n  now: {other}")
    print(json.dumps({"records": len(after), "before": len(before), "differ": len(differ)}))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
