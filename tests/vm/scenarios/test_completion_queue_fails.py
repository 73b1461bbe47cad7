"""A completion queue cannot be made, then the next one can: what was there before is released.

Asked for in https://github.com/NVIDIA/nccl/issues/1191 and ofiwg/libfabric pull request 3403.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]


def test_a_failed_completion_queue_leaks_nothing(pair: Pair, faults: Faults) -> None:
    before = pair.a.run("rdma resource").text
    with faults.create_cq_fails() as fault:
        assert pair.a.run("ibv_srq_pingpong -g 0 2>&1", check=False).status == 1
        assert fault.taken == 1
    assert pair.a.run("rdma resource").text == before
    pair.b.run("ibv_srq_pingpong -g 0 -n 100 > /dev/null 2>&1 &")
    pair.a.run("until ibv_srq_pingpong -g 0 -n 100 10.9.0.2; do sleep 0.2; done", timeout=60)
