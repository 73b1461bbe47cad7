"""`pytest.mark.hosts` of the plugin: sides of `pair` that the test plays, without a guest."""

from __future__ import annotations

import pytest

from bluebridge.guest.drivers.hca.context import Context
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.verbs import WcStatus, WrOpcode
from bluebridge.host_tools.hosts.host import Host
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.buslog import BusLog
from tests.models.players import PATTERN, Player

pytestmark = pytest.mark.hosts("a", "b")
PROGRAM = "python3 -c 'from bluebridge.host_tools.hosts.prompt import *; print(hca.name)'"


def connected(a: Host, b: Host) -> tuple[Player, Player]:
    """A queue pair of each side, with few retries."""
    assert isinstance(a.hca, Context) and isinstance(b.hca, Context)
    first, second = Player(a.hca), Player(b.hca)
    first.connect(second, timeout=8, retry_count=1)
    second.connect(first)
    return first, second


def test_the_test_plays_both_sides(pair: Pair, buslog: BusLog) -> None:
    """Traffic, a rule of a link, the log; a side that is restarted is dead hardware to its peer."""
    a, b = pair.hosts["a"], pair.hosts["b"]
    assert repr(pair.b) == "<host b>" and not (a.touched or b.touched)
    first, second = connected(a, b)
    first.view[: len(PATTERN)] = PATTERN
    first.send(WrOpcode.RDMA_WRITE, [first.sge()], second)
    first.expect(WcStatus.SUCCESS)
    assert bytes(second.view) == PATTERN
    buslog.wait_for(kind="command", guest="b", containing="INIT_PORT")
    with pair.hardware.drop("a") as rule:
        first.send(WrOpcode.RDMA_WRITE, [first.sge()], second)
        first.expect(WcStatus.RETRY_EXC_ERR)
        assert rule.taken == 2
    pair.restart("b")
    first, second = connected(a, b)
    pair.restart("b")
    first.send(WrOpcode.RDMA_WRITE, [first.sge()], second)
    first.expect(WcStatus.RETRY_EXC_ERR)


def test_a_side_is_for_one_at_a_time(pair: Pair) -> None:
    """The test, or a program of its own; what one had is as after a reset for the next."""
    host = pair.hosts["b"]
    status, said = host.run(PROGRAM)
    assert status == 0 and said.startswith("hca is mlx4_0, open") and said.endswith("\nmlx4_0")
    assert host.hca.query_port().active
    status, said = host.run(PROGRAM)
    assert status == 1 and "the HCA of b is held by process" in said
    host.close()
    assert host.run(PROGRAM)[0] == 0
    host.begin("python3 -c 'import time; print(7, flush=True); time.sleep(60)'")
    assert host.finish(20, progress="7") == (-1, "")
    host.interrupt()
    assert host.finish(20)[0] == 130
    host.begin("python3 -i -m bluebridge.host_tools.hosts.prompt")
    host.stop()
    assert host.bus.read32(0, 0) == 0


@pytest.mark.may_crash
def test_a_card_without_a_server_is_one_line(pair: Pair) -> None:
    """The server has ended: its socket is gone."""
    pair.server.stop()
    with pytest.raises(DeviceError, match="the HCA of b does not answer: No such file"):
        _ = pair.hosts["b"].bus
