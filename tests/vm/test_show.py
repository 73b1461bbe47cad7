"""`bluebridge show` beside the kernel's own view, with a QEMU that is stopped and a kernel gone."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from tests.models.lab_commands import Commands

SERVER = "ibv_rc_pingpong -d mlx4_0 -g 1"


def _shown(bluebridge: Commands, what: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(bluebridge.good("show", "a", what, "--json"))["items"]
    return items


def _connected(items: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """RC queue pairs by number, with what the kernel tells of them, too."""
    names = ("type", "state", "rqpn", "rq-psn", "sq-psn", "path-mig-state")
    return {
        item["lqpn"]: tuple(item[name] for name in names) for item in items if item["type"] == "RC"
    }


def _the_kernels(bluebridge: Commands) -> dict[int, tuple[Any, ...]]:
    """The same, as `rdma` in the guest has it: it asks the adapter with QUERY_QP."""
    return _connected(json.loads(bluebridge.good("run", "a", "rdma -j res show qp")))


@pytest.mark.brief
def test_beside_the_kernel_and_without_it(bluebridge: Commands) -> None:
    bluebridge.good("up", "--driver", "kernel", "--quiet")
    bluebridge.good("run", "a", f"{SERVER} > /dev/null 2>&1 &")
    kernels = _the_kernels(bluebridge)
    while [pair[1] for pair in kernels.values()] != ["INIT"]:  # until its peer comes
        time.sleep(0.1)
        kernels = _the_kernels(bluebridge)
    assert _connected(_shown(bluebridge, "qp")) == kernels
    regions = json.loads(bluebridge.good("run", "a", "rdma -j res show mr"))
    lengths = {item["mrlen"] for item in _shown(bluebridge, "mr")}
    assert {region["mrlen"] for region in regions if "mrlen" in region} <= lengths

    qemu = bluebridge.ps()["pairs"][0]["guests"][0]["pid"]
    os.kill(qemu, signal.SIGSTOP)
    try:
        assert _connected(_shown(bluebridge, "qp")) == kernels
    finally:
        os.kill(qemu, signal.SIGCONT)

    bluebridge.good("run", "a", "(sleep 1; echo c > /proc/sysrq-trigger) &")
    while bluebridge.ps()["pairs"][0]["guests"][0]["state"] != "ended":
        time.sleep(0.1)
    assert _connected(_shown(bluebridge, "qp")) == kernels  # as it was then
