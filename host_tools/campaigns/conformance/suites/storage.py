"""A disk of one guest used by the other over RDMA, with every byte compared."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, ROCE, RXE

_TARGET = """
modprobe nvmet-rdma && modprobe brd rd_nr=1 rd_size={kib} || exit 1
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet && mkdir -p subsystems/blue/namespaces/1 ports/1 || exit 1
echo 1 > subsystems/blue/attr_allow_any_host
echo /dev/ram0 > subsystems/blue/namespaces/1/device_path
echo 1 > subsystems/blue/namespaces/1/enable
echo rdma > ports/1/addr_trtype && echo ipv4 > ports/1/addr_adrfam
echo {{server}} > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/blue ports/1/subsystems/blue && touch /run/target
exec sleep 600
"""
_TIDY = """
cd /sys/kernel/config/nvmet 2> /dev/null && rm -f /run/target ports/1/subsystems/blue && \
rmdir subsystems/blue/namespaces/1 subsystems/blue ports/1 && rmmod brd
"""
_INITIATOR = """
modprobe nvme-rdma && nvme connect -t rdma -n blue -a {{server}} -s 4420 || exit 1
until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
fio --name=verify --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=16 \
--rw={pattern} --bsrange=4k-{largest}k --size={mib}m --verify=crc32c --do_verify=1 --verify_fatal=1
status=$?
nvme disconnect -n blue
exit $status
"""


def programs() -> list[Program]:
    """nvmet-rdma on a RAM disk, nvme-rdma with fio writing, reading back and comparing."""
    return [
        _program("randwrite", 128, 8, limit=60, short=True),
        _program("write", 512, 64, limit=240),
        _program("randwrite", 64, 64, limit=240),
    ]


def _program(pattern: str, largest: int, mib: int, *, limit: float, short: bool = False) -> Program:
    return Program(
        "storage",
        f"nvme-rdma, fio --rw={pattern} --bsrange=4k-{largest}k --size={mib}m --verify=crc32c",
        server=_TARGET.format(kib=mib << 10),
        ready="[ -e /run/target ]",
        lasting=True,
        client=_INITIATOR.format(pattern=pattern, largest=largest, mib=mib),
        expect="WRITE: bw=",
        after=_TIDY,
        limit=limit,
        setups=(ROCE, INFINIBAND, *(RXE if short else ())),
        short=short,
    )
