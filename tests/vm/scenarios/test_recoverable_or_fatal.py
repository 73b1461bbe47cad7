"""Completions say one status after the other: which end a connection, which can be retried.

Asked for in https://github.com/ROCm/rocm-systems/pull/6145 and Mooncake issue 2960.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
QUEUE = "rdma resource show qp | sed -n 's/.*lqpn \\([0-9]*\\) .*RTS.*comm ibv_rc_ping.*/\\1/p'"


@pytest.mark.parametrize("number", {"wc-wr-flush-err": 5, "wc-rem-access-err": 10}.items())
def test_a_status_reaches_the_program(pair: Pair, faults: Faults, number: tuple[str, int]) -> None:
    pair.b.run("ibv_rc_pingpong -g 0 -n 9999999 > /dev/null 2>&1 &")
    connect = "ibv_rc_pingpong -g 0 -n 9999999 10.9.0.2"
    pair.a.run(f"(until {connect} || grep Failed /tmp/said; do sleep 0.2; done) >/tmp/said 2>&1 &")
    qpn = pair.a.run(f"until {QUEUE} | grep .; do sleep 0.1; done").text.split()[0]
    with getattr(faults, number[0].replace("-", "_"))(qpn=qpn):
        pair.a.run(f"until grep -q 'Failed.*({number[1]})' /tmp/said; do sleep 0.1; done")
