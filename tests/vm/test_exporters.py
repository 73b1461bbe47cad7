"""Monitoring in a guest: node_exporter's InfiniBand collector and `rdma statistic`."""

from __future__ import annotations

import json
import re
import time

from bluebridge.host_tools.lab.software import GuestSoftware
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.pytest_plugin.lab import Lab
from tests.vm.conftest import BOOT_SECONDS
from tests.vm.network import address

PACKAGE = "prometheus-node-exporter"
BYTES = 20 * 65536
WORD = 4
"""The bytes of a unit of the port's counters of data."""
COUNTERS = "/sys/class/infiniband/mlx4_0/ports/1"
_FETCH = """\
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9100/metrics").read().decode())
"""


def test_monitoring_reads_what_the_port_counted(lab: Lab) -> None:
    """Bytes that a program sent, as the exporter and the kernel's files tell them."""
    with lab.pair(kernel=True, vfio=False, software=GuestSoftware(packages=(PACKAGE,))) as pair:
        words = "ibv_rc_pingpong -d mlx4_0 -g 0 -s 65536 -n 20"
        pair.b.run(f"{words} < /dev/null > /dev/null 2>&1 &")
        time.sleep(1)
        pair.a.run(f"{words} {address(pair.b)}", timeout=60)
        options = "--collector.disable-defaults --collector.infiniband"
        pair.a.run(f"{PACKAGE} {options} < /dev/null > /tmp/exporter 2>&1 &")
        sent = _exported(pair.a, "port_data_transmitted_bytes_total")
        assert sent >= BYTES
        assert sent == WORD * int(pair.a.run(f"cat {COUNTERS}/counters/port_xmit_data").text)
        told = json.loads(pair.a.run("rdma -j statistic show link mlx4_0/1").text)[0]
        files = pair.a.run(f"cd {COUNTERS}/hw_counters && grep . *").text
        counted = dict(line.split(":") for line in files.split() if not line.startswith("lifespan"))
        assert counted
        assert {name: str(told[name]) for name in counted} == counted


def _exported(machine: Vm, name: str) -> int:
    """The value of node_exporter's metric of port 1, once it answers."""
    machine.agent.put(_FETCH.encode(), "/tmp/fetch.py")
    deadline = time.monotonic() + BOOT_SECONDS
    while (page := machine.run("python3 /tmp/fetch.py", check=False)).status:
        assert time.monotonic() < deadline, machine.run("cat /tmp/exporter").text
        time.sleep(1)
    (found,) = re.findall(rf'^node_infiniband_{name}{{.*port="1".*}} (\S+)$', page.text, re.M)
    return int(float(found))
