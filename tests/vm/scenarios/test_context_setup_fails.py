"""Each step of a device's set-up fails in turn, and what the steps before it got is released.

The list of https://github.com/kvcache-ai/Mooncake/issues/3778. A protection domain and a completion
channel are the kernel's alone: its own limits refuse them. GIDs come from the kernel's table, so no
query of one fails; `test_gid_vanishes.py` has what an adapter can do to them.
"""

import contextlib

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [
    pytest.mark.devices("hca", kernel=True), pytest.mark.shared_pair, pytest.mark.long
]  # fmt: skip
PINGPONG = "ibv_rc_pingpong -g 0 10.9.0.2"
GROUP = """
mkdir -p /tmp/groups && mount -t cgroup2 none /tmp/groups && cd /tmp/groups || exit 9
echo +rdma > cgroup.subtree_control && mkdir -p few && echo mlx4_0 hca_object=0 > few/rdma.max
echo 0 > few/cgroup.procs; exec """
STEPS = {
    "query device": ("mad_fails", "ibv_devinfo", "Failed to query device props"),
    "query port": ("query_port_fails", "ibv_devinfo", "Failed to query port 1 props"),
    "allocate domain": ("", f"sh -c '{GROUP}{PINGPONG}'", "Couldn't allocate PD"),
    "create channel": ("", f"(ulimit -n 5; {PINGPONG} -e)", "Couldn't create completion channel"),
    "register memory": ("reg_mr_fails", PINGPONG, "Couldn't register MR"),
    "create queue": ("create_cq_fails", PINGPONG, "Couldn't create CQ"),
    "to INIT": ("qp_to_init_fails", PINGPONG, "Failed to modify QP to INIT"),
}
MANY = "import pyverbs.device as d; all=[]\nwhile 1: all.append(d.Context(name='mlx4_0'))"
RELOAD = "rmmod mlx4_ib mlx4_en mlx4_core; modprobe mlx4_core && modprobe mlx4_ib"


@pytest.mark.parametrize("step", STEPS)
def test_what_was_got_before_a_failure_is_released(pair: Pair, faults: Faults, step: str) -> None:
    fault, line, says = STEPS[step]
    before = pair.a.run("rdma resource").text
    with getattr(faults, fault)(count=9) if fault else contextlib.nullcontext():
        ended = pair.a.run(f"{line} 2>&1", check=False)
    assert ended.status != 0 and says in ended.text
    assert pair.a.run("rdma resource").text == before


def test_a_port_that_is_down_at_first_is_active_later(pair: Pair, faults: Faults) -> None:
    with faults.port_down():
        pair.a.run("until ibv_devinfo | grep PORT_DOWN; do sleep 0.1; done")
    pair.a.run("until ibv_devinfo | grep PORT_ACTIVE; do sleep 0.1; done")


def test_a_port_has_another_speed_without_going_down(pair: Pair, faults: Faults) -> None:
    rate = "cat /sys/class/infiniband/mlx4_0/ports/1/rate"
    assert pair.a.run(rate).text.strip() == "40 Gb/sec (4X QDR)"
    with faults.command_wrong(opcode="QUERY_PORT", field="link_speed", value=2):
        assert pair.a.run(rate).text.strip() == "10 Gb/sec (1X QDR)"


def test_the_device_cannot_be_opened_once_more(pair: Pair, faults: Faults) -> None:
    """The driver is told of few doorbell pages: this comes last, it leaves no addresses."""
    with faults.few_uars():
        pair.a.run(RELOAD, timeout=90)
    before = pair.a.run("rdma resource").text
    ended = pair.a.run(f'python3 -c "{MANY}" 2>&1', check=False)
    assert "Failed to open device mlx4_0. Errno: 12" in ended.text
    assert pair.a.run("rdma resource; ibv_devinfo > /dev/null").text == before
