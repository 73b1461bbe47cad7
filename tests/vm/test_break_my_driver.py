"""The cable of a guest is pulled and plugged in again, and its driver gets over it."""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.buslog import BusLog

pytestmark = pytest.mark.devices("hca", vfio=False)  # an HCA in each guest, and no driver yet


@pytest.fixture
def loaded(pair: Pair) -> Pair:
    """Both guests with mlx4_en and an address."""
    for number, guest in enumerate((pair.a, pair.b), start=1):
        guest.run(f"bluebridge-mlx4 10.9.0.{number}/24", timeout=120)
    return pair


def test_the_link_comes_back(loaded: Pair, buslog: BusLog) -> None:
    loaded.hardware.unplug("a")
    assert loaded.a.run("ping -c 1 -w 5 10.9.0.2", check=False).status != 0
    loaded.hardware.plug("a")
    loaded.a.run("ping -c 3 -w 60 10.9.0.2")  # fails the test unless three answers come
    assert buslog.records(kind="link", guest="a")


def test_a_lost_packet_is_sent_again(loaded: Pair, buslog: BusLog) -> None:
    with loaded.hardware.drop("b", kind="frames", direction="in", count=1) as rule:
        loaded.a.run("ping -c 3 -i 0.3 -w 60 10.9.0.2")
        assert rule.taken == 1
    assert buslog.records(kind="fault")
