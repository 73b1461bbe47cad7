"""Work requests get no completion from the first on, and no error: only a time limit helps.

Asked for in https://github.com/kvcache-ai/Mooncake/issues/3523 and its pull request 2738.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = pytest.mark.devices("hca", kernel=True)
CONNECTED = "rdma resource show qp | grep -q 'RTS.*comm ibv_rc_ping'"


def test_only_a_time_limit_ends_a_hung_transfer(pair: Pair, faults: Faults) -> None:
    pair.b.run("ibv_rc_pingpong -g 0 -n 9999999 > /dev/null 2>&1 &")
    connect = "ibv_rc_pingpong -g 0 -n 9999999 10.9.0.2"
    with faults.hung_wr(next_connection=True) as fault:
        pair.a.run(f"(until {connect}; do sleep 0.2; done) > /tmp/said 2>&1 &")
        pair.a.run(f"until {CONNECTED}; do sleep 0.1; done")
        pair.a.run("sleep 2; pidof ibv_rc_pingpong; kill $(pidof ibv_rc_pingpong)")
        assert fault.taken > 0
    assert "Failed status" not in pair.a.run("cat /tmp/said").text
