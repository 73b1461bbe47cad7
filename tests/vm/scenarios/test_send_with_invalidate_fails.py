"""An adapter offers SEND with invalidate and cannot do it: a target's first answer ends its queue.

Asked for in https://github.com/spdk/spdk/issues/3926, of a card of another maker.
"""

import pytest

from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.pytest_plugin.peer import Faults

pytestmark = [pytest.mark.devices("hca", kernel=True), pytest.mark.long]
TARGET = """
modprobe nvmet-rdma && modprobe brd rd_nr=1 rd_size=16384 && modprobe configfs
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet && mkdir -p subsystems/blue/namespaces/1 ports/1 || exit 1
echo 1 > subsystems/blue/attr_allow_any_host && cd subsystems/blue/namespaces/1
echo /dev/ram0 > device_path && echo 1 > enable && cd ../../../../ports/1
echo rdma > addr_trtype && echo ipv4 > addr_adrfam && echo 4420 > addr_trsvcid
echo 10.9.0.2 > addr_traddr && ln -s ../../subsystems/blue subsystems/blue
"""
CONNECT = "nvme connect -t rdma -n blue -a 10.9.0.2 -s 4420"


def test_no_host_gets_an_answer_until_the_target_sends_without(pair: Pair, faults: Faults) -> None:
    pair.b.run(TARGET)
    pair.a.run("modprobe nvme-rdma; echo 3 > /sys/module/nvme_core/parameters/admin_timeout")
    with faults.of("b").wr_unsupported(opcode="SEND_WITH_INV") as fault:
        assert pair.a.run(CONNECT, check=False).status == 1
        assert fault.taken == 1
    assert "failed with status local QP operation error (2)" in pair.b.run("dmesg").text
    pair.a.run(f"{CONNECT} && nvme disconnect -n blue")
