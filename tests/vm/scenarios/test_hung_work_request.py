"""Work requests get no completion any more, and no error either: only a time limit helps.

Asked for in https://github.com/kvcache-ai/Mooncake/issues/3523 and its pull request 2738.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = pytest.mark.devices("hca", kernel=True)
QUEUE = "rdma resource show qp | sed -n 's/.*lqpn \\([0-9]*\\) .*RTS.*comm ibv_rc_ping.*/\\1/p'"


def test_only_a_time_limit_ends_a_hung_transfer(pair: Pair, faults: Faults) -> None:
    pair.b.run("ibv_rc_pingpong -g 0 -n 9999999 > /dev/null 2>&1 &")
    connect = "ibv_rc_pingpong -g 0 -n 9999999 10.9.0.2"
    pair.a.run(f"(until {connect}; do sleep 0.2; done) > /tmp/said 2>&1 &")
    qpn = pair.a.run(f"until {QUEUE} | grep .; do sleep 0.1; done").text.split()[0]
    with faults.hung_wr(qpn=qpn) as fault:
        pair.a.run("sleep 3; pidof ibv_rc_pingpong; kill $(pidof ibv_rc_pingpong)")
        assert fault.taken > 0
    assert "Failed status" not in pair.a.run("cat /tmp/said").text
