"""The first SEND of a connection ends with a status: one that can be retried, or one that cannot.

Asked for in https://github.com/ROCm/rocm-systems/pull/6145 and Mooncake issue 2960.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]


@pytest.mark.parametrize("number", {"wc_wr_flush_err": 5, "wc_rem_access_err": 10}.items())
def test_a_status_reaches_the_program(pair: Pair, faults: Faults, number: tuple[str, int]) -> None:
    pair.b.run("ibv_rc_pingpong -g 0 > /dev/null 2>&1 &")
    connect = "ibv_rc_pingpong -g 0 10.9.0.2 > /tmp/said 2>&1"
    with getattr(faults, number[0])(next_connection=True, opcode="SEND") as fault:
        pair.a.run(f"until {connect} || grep -q 'Failed.*({number[1]})' /tmp/said; do :; done")
        assert fault.taken == 1
