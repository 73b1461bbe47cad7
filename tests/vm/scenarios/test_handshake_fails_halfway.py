"""One side's queue pair cannot be made ready: nothing of it remains, and the next handshake works.

Asked for in https://github.com/kvcache-ai/Mooncake/issues/204 and waltligon/orangefs issue 77.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
CONNECT = "rping -c -a 10.9.0.2 -C 10"
LISTENS = "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done"


def test_a_failed_handshake_leaves_nothing(pair: Pair, faults: Faults) -> None:
    pair.b.run(f"(while :; do rping -s; done) > /dev/null 2>&1 & {LISTENS}")
    before = pair.a.run("rdma resource").text
    with faults.qp_to_rtr_fails() as fault:
        assert pair.a.run(CONNECT, check=False, timeout=60).status != 0
        assert fault.taken == 1
    assert pair.a.run("rdma resource").text == before
    pair.a.run(f"until {CONNECT}; do sleep 0.2; done", timeout=60)
