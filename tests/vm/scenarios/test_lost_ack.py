"""The data arrives and its acknowledgement does not: once is nothing, for ever ends the connection.

Asked for in https://github.com/ROCm/mori/issues/655 and its pull request 670.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
WRITE = "ib_write_lat -x 0 -n 500"
LISTENS = "until ss -Hltn 'sport = :18515' | grep -q .; do sleep 0.1; done"


def test_one_answer_is_lost_then_all_are(pair: Pair, faults: Faults) -> None:
    pair.b.run(f"{WRITE} > /dev/null 2>&1 & {LISTENS}")
    with faults.ack_lost() as fault:
        pair.a.run(f"{WRITE} 10.9.0.2", timeout=60)
        assert fault.taken == 1
    pair.b.run(f"{WRITE} > /tmp/said 2>&1 & {LISTENS}")
    with pair.hardware.drop("a", opcode="ACK", direction="in"):
        ended = pair.a.run(f"{WRITE} 10.9.0.2 2>&1", check=False, timeout=60)
    assert "Failed status 12" in ended.text
    pair.b.run("kill $(pidof ib_write_lat); ! grep 'Failed status' /tmp/said")
