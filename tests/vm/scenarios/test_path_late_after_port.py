"""The port says that it is active, and nothing passes for a while yet.

Asked for in https://github.com/kvcache-ai/Mooncake/pull/2959 (failover between rails).
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
STATE = "/sys/class/infiniband/mlx4_0/ports/1/state"


def test_an_active_port_that_carries_nothing(pair: Pair, faults: Faults) -> None:
    pair.a.run("ping -c 1 -w 30 10.9.0.2")
    with faults.port_late(ms=8000):
        pair.a.run(f"until grep -q DOWN {STATE}; do sleep 0.1; done")
        pair.a.run(f"until grep -q ACTIVE {STATE}; do sleep 0.1; done")
        assert pair.a.run("ping -c 1 -W 1 10.9.0.2", check=False).status == 1
        pair.a.run("until ping -c 1 -W 1 10.9.0.2; do :; done", timeout=60)
