"""The other guest: verified traffic on its HCA, and how long each doorbell waits for its answer.

`python -m tests.hostile.bystander SOCKET PID` works until a line comes on standard input and then
prints a `Report` as JSON. PID is the server: time in which it, or this process, had no processor is
the machine's doing, and is counted apart.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from tests.models.players import connected
from tests.models.server import ROOT

PAUSE_SECONDS = 0.001
LONGEST_SECONDS = 20.0
"""A doorbell without an answer for so long is a wrong one."""
OPCODES = (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_READ, WrOpcode.SEND)


@dataclass
class Report:
    """Operations, how many of them were wrong, and answer times in seconds.

    `own_` times leave out the time in which server or bystander had no processor.
    """

    operations: int
    wrong: int
    worst: float
    permille: float
    own_worst: float
    own_permille: float

    @classmethod
    def of(cls, wrong: int, times: list[float], own: list[float]) -> Report:
        """Of the times of all operations; `permille` is what 99.9 % of them stay below."""
        last = max(0, -(-len(times) * 999 // 1000) - 1)
        times, own = sorted(times), sorted(own)
        return cls(len(times), wrong, times[-1], times[last], own[-1], own[last])


class Traffic:
    """Two connected queue pairs of one HCA; each operation moves random bytes."""

    def __init__(self, bus: SocketBus, seed: int) -> None:
        ctx = open_hca(bus)
        self._chance = Random(seed)
        self._a, self._b = connected(ctx, ctx)

    def operate(self) -> bool:
        """One operation; whether exactly its bytes arrived, and its completions."""
        a, b, chance = self._a, self._b, self._chance
        opcode, size = chance.choice(OPCODES), chance.randint(1, 4096)
        source, target = (b, a) if opcode is WrOpcode.RDMA_READ else (a, b)
        source.view[:size] = chance.randbytes(size)
        expected = bytes(source.view[:size]) + bytes(target.view[size:])
        if opcode is WrOpcode.SEND:
            b.receive()
        a.cq.req_notify()
        a.send(opcode, [a.sge(0, size)], b)
        a.channel.get_event(LONGEST_SECONDS)
        done = a.cq.poll()
        if opcode is WrOpcode.SEND:
            done += b.cq.poll()
        statuses = [wc.status for wc in done]
        wanted = 2 if opcode is WrOpcode.SEND else 1
        return statuses == [WcStatus.SUCCESS] * wanted and target.view == expected


def _waited(paths: tuple[Path, ...]) -> float:
    """Seconds that processes waited for a processor; 0 where the kernel does not count."""
    try:
        return sum(int(path.read_text().split()[1]) for path in paths) / 1e9
    except OSError:
        return 0.0


def _main(path: str, pid: str) -> None:
    traffic = Traffic(SocketBus(Path(path)), int(pid))
    paths = Path("/proc/self/schedstat"), Path(f"/proc/{pid}/schedstat")
    print("working", flush=True)
    times, own, wrong = [], [], 0
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        before, begin = _waited(paths), time.perf_counter()
        wrong += not traffic.operate()
        times.append(time.perf_counter() - begin)
        own.append(max(0.0, times[-1] - (_waited(paths) - before)))
    print(json.dumps(asdict(Report.of(wrong, times, own))), flush=True)


class Bystander:
    """The process; `report` ends it."""

    def __init__(self, path: Path, pid: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.bystander", path, str(pid)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._line() != "working\n":
            self.kill()
            raise AssertionError("the bystander's adapter did not come up")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def report(self) -> Report:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Report(**json.loads(self._line()))

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self._process.kill()
        self._process.communicate()


if __name__ == "__main__":
    _main(*sys.argv[1:])
