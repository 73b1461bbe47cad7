"""Memory cannot be registered: the program says so and leaves nothing behind.

Asked for in https://github.com/openucx/ucx/issues/6264 and NVIDIA/nccl issue 563.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = pytest.mark.devices("hca", kernel=True)


@pytest.mark.brief
def test_no_memory_region_and_nothing_left(pair: Pair, faults: Faults) -> None:
    before = pair.a.run("rdma resource").text
    with faults.reg_mr_fails() as fault:
        ended = pair.a.run("ibv_rc_pingpong -g 0 10.9.0.2 2>&1", check=False)
        assert fault.taken == 1
    assert (ended.status, "Couldn't register MR" in ended.text) == (1, True)
    assert pair.a.run("rdma resource").text == before
