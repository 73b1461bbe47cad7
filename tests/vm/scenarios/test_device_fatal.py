"""The adapter fails for good in the middle of traffic; the driver resets it, programs must reopen.

Asked for in https://github.com/openucx/ucx/pull/8133 and Mellanox/libvma pull request 828.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
WATCH = """
from pyverbs.device import Context
context = Context(name='mlx4_0')
print('ready')
while True: print(context.get_async_event().event_type)
"""


def test_programs_hear_of_it_and_the_adapter_returns(pair: Pair, faults: Faults) -> None:
    pair.a.run(f'python3 -u -c "{WATCH}" > /tmp/events 2>&1 &')
    pair.a.run("until grep -q ready /tmp/events; do sleep 0.1; done")
    with faults.device_fatal():
        pair.a.run("until grep -qx 8 /tmp/events; do sleep 0.1; done")
        pair.a.run("until dmesg | grep 'was reset successfully'; do sleep 0.1; done", timeout=60)
    pair.a.run("until ibv_devinfo | grep PORT_; do sleep 0.2; done", timeout=60)
    pair.a.run("bluebridge-mlx4 10.9.0.1/24 && ping -c 1 -w 30 10.9.0.2", timeout=90)
