"""A GID that programs remember is gone from the adapter: peers get no answer until it is back.

Asked for in https://github.com/NVIDIA/nccl/issues/1333 and its pull request 2183.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
SERVER = "until ibv_rc_pingpong -g 0 -n 100; do sleep 0.2; done > /dev/null 2>&1 &"


def test_a_remembered_gid_leads_nowhere(pair: Pair, faults: Faults) -> None:
    pair.b.run(SERVER)
    with faults.gid_vanishes(index=0):
        ended = pair.a.run("sleep 1; ibv_rc_pingpong -g 0 -n 100 10.9.0.2 2>&1", check=False)
        assert ended.status == 1
    pair.b.run(SERVER)
    pair.a.run("until ibv_rc_pingpong -g 0 -n 100 10.9.0.2; do sleep 0.2; done", timeout=60)
