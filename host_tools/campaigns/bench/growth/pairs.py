"""What one more pair of guests costs while others run, and what they all cost while idle."""

from __future__ import annotations

import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from bluebridge.host_tools.campaigns.bench.figures import Figure
from bluebridge.host_tools.campaigns.bench.growth.series import series
from bluebridge.host_tools.campaigns.bench.startup import bluebridge
from bluebridge.host_tools.progress import Progress

PAIRS = (1, 4, 8)
_UPS = 3
_LISTS = 7
_SETTLE_SECONDS = 5.0
_IDLE_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def figures(progress: Progress) -> list[Figure]:
    """Everything of this module."""
    found: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        env = {**os.environ, "XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}
        bluebridge(env, "up", "--quiet")  # makes the snapshot if need be
        try:
            for count in PAIRS:
                progress(f"{count} pairs of guests")
                for name, cost in _measure(env, count).items():
                    found.setdefault(name, {})[count] = cost
        finally:
            bluebridge(env, "down")
    return [
        *series("up", "`bluebridge up` of one more pair, until as many run", "s", found["up"]),
        *series("ps", "`bluebridge ps`, processor time", "ms", found["ps"]),
        *_idle(found, "guests", "both QEMUs"),
        *_idle(found, "server", "the device server"),
        *_idle(found, "keeper", "the keeper"),
        *series("guest_memory", "memory of an idle guest, PSS", "MiB", found["guest memory"]),
        *series(
            "server_memory", "memory of a pair's device server, PSS", "MiB", found["server memory"]
        ),
    ]


def _idle(found: dict[str, dict[int, float]], key: str, who: str) -> list[Figure]:
    title = f"processor time of {who} of an idle pair, of one core"
    return series(f"idle_{key}", title, "%", found[f"idle {key}"])


def _measure(env: dict[str, str], count: int) -> dict[str, float]:
    """All costs by name while `count` pairs run, one fewer or more at the beginning."""
    while len(_running(env)) < count:
        bluebridge(env, "up", "--quiet")
    seconds = []
    for _ in range(_UPS):
        last = _running(env)[-1]
        bluebridge(env, "down", str(last["number"]))
        begin = time.perf_counter()
        bluebridge(env, "up", "--quiet")
        seconds.append(time.perf_counter() - begin)
    pairs = _running(env)
    time.sleep(_SETTLE_SECONDS)
    pids = {
        "guests": [guest["pid"] for pair in pairs for guest in pair["guests"]],
        "server": [pair["server"] for pair in pairs],
        "keeper": [pair["keeper"] for pair in pairs],
    }
    idle = _idle_shares(pids)
    return {
        "up": statistics.median(seconds),
        "ps": min(_ps_ms(env) for _ in range(_LISTS)),
        **{f"idle {name}": share / count for name, share in idle.items()},
        "guest memory": statistics.mean(map(_pss_mib, pids["guests"])),
        "server memory": statistics.mean(map(_pss_mib, pids["server"])),
    }


def _running(env: dict[str, str]) -> list[dict[str, Any]]:
    return list(json.loads(bluebridge(env, "ps", "--json"))["pairs"])


def _ps_ms(env: dict[str, str]) -> float:
    """Processor time of `bluebridge ps`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bluebridge(env, "ps")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def _idle_shares(pids: dict[str, list[int]]) -> dict[str, float]:
    """Percent of one core that each group of processes takes in all."""
    before = {name: sum(map(_cpu_seconds, group)) for name, group in pids.items()}
    begin = time.monotonic()
    time.sleep(_IDLE_SECONDS)
    seconds = time.monotonic() - begin
    return {
        name: (sum(map(_cpu_seconds, group)) - before[name]) / seconds * 100
        for name, group in pids.items()
    }


def _cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, those that have ended too."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _pss_mib(pid: int) -> float:
    """Resident memory of a process, pages that it shares divided among those who have them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
