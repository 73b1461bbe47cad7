"""The time in which no request completes after a path has died in silence."""

from __future__ import annotations

import json
import math
import signal
import time

from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.progress import Progress
from bluebridge.host_tools.rtrs.cuts import Cut, Cutter
from bluebridge.host_tools.rtrs.interruption import Interruption
from bluebridge.host_tools.rtrs.kernel_side import CLIENT_ROOT
from bluebridge.host_tools.rtrs.session import Mapped
from bluebridge.host_tools.rtrs.sides import SESSION

_PAUSE_SECONDS = 2.0
_LONGEST_CUT = 60.0
_SECONDS_PER_CUT = 120
_LOAD = "fio --name=load --filename={device} --rw=randread --bs=4k --iodepth=16 --ioengine=libaio \
--direct=1 --size=64M --time_based --runtime={seconds} > /dev/null"
_SAMPLER = """
import json, os, sys, time
device, stop = sys.argv[1:]
gaps, last, since = [], None, time.monotonic()
with open(f"/sys/block/{device}/stat") as file:
    while not os.path.exists(stop):
        file.seek(0)
        words = file.read().split()
        done, now = (words[0], words[4]), time.monotonic()
        if done != last:
            if last is not None and now - since > 1:
                gaps.append(now - since)
            last, since = done, now
        time.sleep(0.01)
print(json.dumps(gaps))
"""
_STOP = "/run/failover-stop"


def gaps(mapped: Mapped, cuts: int, progress: Progress) -> list[float]:
    """Seconds from the last completion before each of `cuts` silent cuts to the first after it.

    Under random reads, 16 at a time, in turn on all paths; to the hundredth of a second. A path
    comes back before the next cut. Raises `LabError`.
    """
    client = mapped.pair.a
    # By its default policy the client gives hardly any request to a path that came back.
    client.run(f"echo round-robin > {CLIENT_ROOT}/{SESSION}/mpath_policy")
    name = mapped.device.rpartition("/")[2]
    client.run(f"rm -f {_STOP}")
    sampler = client.agent.start(["python3", "-c", _SAMPLER, name, _STOP], None)
    seconds = cuts * _SECONDS_PER_CUT
    load = client.agent.start(_LOAD.format(device=mapped.device, seconds=seconds), None)
    try:
        for number in range(cuts):
            progress(f"silent death {number + 1} of {cuts}")
            _cut(mapped)
    finally:
        load.signal(signal.SIGTERM)
        load.wait()
        client.run(f"touch {_STOP}")
    return list(json.loads(_output(sampler.wait().stdout, client)))


def _output(printed: bytes, machine: Vm) -> str:
    assert printed, f"guest {machine.name}: the sampler printed nothing"
    return printed.decode()


def _cut(mapped: Mapped) -> None:
    time.sleep(_PAUSE_SECONDS)
    route = mapped.routes[-1]
    cut = Interruption(mapped, Cutter(mapped.pair.server.tell, Cut.SILENT), route, lambda _: None)
    cut.run_until_given_up(_LONGEST_CUT, deadline=math.inf)
