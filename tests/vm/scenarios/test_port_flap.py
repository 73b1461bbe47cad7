"""A port goes down and comes back: a program that listens hears both, in order.

Asked for in https://github.com/kvcache-ai/Mooncake/issues/3596 and NVIDIA/NVSentinel issue 1236.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = pytest.mark.devices("hca", kernel=True)
WATCH = """
from pyverbs.device import Context
context = Context(name='mlx4_0')
print('ready')
while True: print(context.get_async_event().event_type)
"""
EVENTS = "grep -x '9\\|10' /tmp/events"


def test_each_flap_is_two_events(pair: Pair, faults: Faults) -> None:
    pair.a.run(f'python3 -u -c "{WATCH}" > /tmp/events 2>&1 &')
    pair.a.run("until grep -q ready /tmp/events; do sleep 0.1; done")
    with faults.port_flap(times=2, ms=500):
        pair.a.run(f"until [ $({EVENTS} | grep -cx 9) -ge 2 ]; do sleep 0.1; done")
    assert pair.a.run(EVENTS).text.split("\n")[:2] == ["10", "9"]
    pair.a.run("until ping -c 1 -W 1 10.9.0.2; do :; done", timeout=60)
