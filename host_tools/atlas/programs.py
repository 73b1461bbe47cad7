"""The programs that the atlas runs under faults: the client in guest a, its server in guest b."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from bluebridge.device import cards
from bluebridge.device.layout.faults import Effect, NamedFault
from bluebridge.device.layout.mlx4 import faults as mlx4
from bluebridge.device.layout.mlx5 import faults as mlx5
from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening

FAULTS = {cards.CONNECTX3.name: mlx4.FAULTS, cards.CONNECTX5.name: mlx5.FAULTS}
"""The faults of each card, by its name."""
SERVER = "10.9.0.2"
"""The address of guest b's first port."""
EVENTS = "/tmp/guest_events.py"
"""The path of `guest_events.py` in guest a."""
_FIO = (
    "fio --name=atlas --filename={disk} --direct=1 --ioengine=libaio --iodepth=8 --rw=randrw "
    "--bs=4k --size=4m --time_based --runtime=COUNT --verify=crc32c --verify_backlog=16 "
    "--verify_fatal=1"
)

_ANSWERED = (Effect.COMMAND_FAILS, Effect.COMMAND_WRONG)
AT_LOAD = (
    "QUERY_FW", "MAP_FA", "RUN_FW", "QUERY_DEV_CAP", "SET_ICM_SIZE", "INIT_HCA", "QUERY_ADAPTER",
    "SW2HW_EQ", "MAP_EQ", "NOP", "SET_PORT", "INIT_PORT", "UPDATE_QP",
    "QUERY_HCA_CAP", "CREATE_EQ",
)  # fmt: skip
"""Commands that mlx4 and mlx5 send when they are loaded, and not for a program."""

_EVERY = ("*",)

_UCX = (
    "< /dev/console LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/pmix2/lib UCX_TLS=rc_v "
    "UCX_NET_DEVICES=$(ls /sys/class/infiniband):1 UCX_IB_GID_INDEX=0 ucx_perftest"
)
"""Debian's program wants Open MPI's libraries, but not MPI itself if its input is a terminal."""

NVME_TARGET = """
modprobe nvmet-rdma && modprobe brd rd_nr=1 rd_size={kib} || exit 1
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet && mkdir -p subsystems/blue/namespaces/1 ports/1 || exit 1
echo 1 > subsystems/blue/attr_allow_any_host
echo /dev/ram0 > subsystems/blue/namespaces/1/device_path
echo 1 > subsystems/blue/namespaces/1/enable
echo rdma > ports/1/addr_trtype && echo ipv4 > ports/1/addr_adrfam
echo {address} > ports/1/addr_traddr && echo 4420 > ports/1/addr_trsvcid
[ -e ports/1/subsystems/blue ] || ln -s /sys/kernel/config/nvmet/subsystems/blue ports/1/subsystems/
"""
"""Exports a RAM disk of `kib` KiB at the guest's `address`."""
_RNBD = "/sys/devices/virtual/rnbd-client/ctl"
_MAP = f"""
modprobe rnbd-client && ping -c 1 -W 1 {SERVER} > /dev/null
echo 'sessname=atlas path=ip:{SERVER} device_path=/dev/ram0' > {_RNBD}/map_device || exit 1
disk=$(grep -lx atlas /sys/block/rnbd*/rnbd/session | cut -d/ -f4); status=0
{_FIO.format(disk="/dev/$disk")} || status=$?
exit $status
"""
_UNMAP = """
for folder in /sys/block/rnbd*/rnbd; do
    [ ! -e $folder ] || echo force > $folder/unmap_device
done
"""

_SHARE = """
grep -q rdma /proc/fs/nfsd/portlist 2> /dev/null && exit 0
modprobe rpcrdma && modprobe nfsd && mkdir -p /srv /var/lib/nfs || exit 1
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t tmpfs none /srv && mount -t nfsd nfsd /proc/fs/nfsd || exit 1
exportfs -i -o rw,no_root_squash,insecure,fsid=0 '*:/srv' && rpc.mountd -N 3 || exit 1
rpc.nfsd -N 3 -G 10 -L 10 --rdma=20049 4 && sleep 11  # seconds in which nothing may be opened
"""
_MOUNT = f"""
modprobe rpcrdma && modprobe nfsv4 || exit 1
mount.nfs {SERVER}:/ /mnt -o vers=4.2,rdma,port=20049,soft,timeo=20,retrans=1 || exit 1
{_FIO.format(disk="/mnt/atlas")}
"""
_RELOAD = """
if [ -e /sys/module/mlx5_core ]; then
    modprobe -r mlx5_ib mlx5_core; bluebridge-mlx5 10.9.0.1/24 || exit 1
else
    modprobe -r mlx4_en mlx4_ib mlx4_core; bluebridge-mlx4 10.9.0.1/24 || exit 1
fi
exec ibv_devinfo
"""

_FEW = ("hung-wr", "wc-wr-*", "wc-rem-access-*", "wire-dead", "port-down", "device-fatal")
_VERBS = ("reg-mr-*", "create-cq-*", "qp-to-r*", "destroy-qp-*", "wc-*", *_FEW)


@dataclass(frozen=True)
class Program:
    """One program of other people, as shell lines; it ends by itself after a few seconds.

    `owner` is the name under which `rdma resource` has its queue pairs, empty for a program that
    has none of its own. COUNT in a line is how much it does: `brief` for faults that are armed
    before it starts, else `long`, which takes about two seconds. `limit` is the time in seconds
    after which it counts as hung, unless four runs without a fault take longer. `before` runs in
    guest b ahead of the server, `after` in guest a and `over` in guest b at the end.
    """

    name: str
    what: str
    client: str
    owner: str
    brief: int
    long: int
    server: str = ""
    ready: str = ""
    limit: float = 6.0
    before: str = ""
    after: str = ""
    over: str = ""
    left: str = ""
    """A shell line that fails in both guests once nothing of the program is there any more, which
    is looked at behind `after`; guests where something stays are started anew."""
    rnbd: bool = False
    """Whether the guests need the modules of RTRS and RNBD."""
    messages: bool = False
    """Whether the guests need UCX and libfabric."""
    nfs: bool = False
    """Whether the guests need NFS over RDMA."""
    loads: bool = False
    """Whether it loads the drivers, and so is what faults of their load are for."""
    concerns: tuple[str, ...] = ("*",)
    """Patterns of the names of faults under which it is run unless the user chooses."""

    def concerned(self, fault: NamedFault) -> bool:
        """Return whether a fault is one that this program, of all, is to show."""
        named = any(fnmatch.fnmatch(fault.name, pattern) for pattern in self.concerns)
        return named and self.meets(fault)

    def meets(self, fault: NamedFault) -> bool:
        """Return whether a fault is one for this program at all."""
        loading = fault.effect in _ANSWERED and fault.fixed.get("opcode") in AT_LOAD
        if fault.name.startswith("rtrs-"):
            return self.rnbd
        return loading is self.loads


def _verbs(
    tool: str,
    words: str,
    brief: int,
    long: int,
    what: str,
    concerns: tuple[str, ...] = _EVERY,
    port: int = VERBS_PORT,
) -> Program:
    """A program that is the same on both sides, but for the client's last word."""
    line, name = f"{tool} {words}", tool.split()[-1]
    return Program(
        name, what, f"{line} {SERVER}", name[:15], brief, long,
        server=line, ready=listening(port), messages=port != VERBS_PORT, concerns=concerns,
    )  # fmt: skip


def _cm(
    tool: str, client: str, server: str, brief: int, long: int, what: str, concerns: tuple[str, ...]
) -> Program:
    ready = f"rdma resource show cm_id | grep LISTEN | grep -q 'comm {tool}'"
    return Program(
        tool, what, client, tool, brief, long, server=server, ready=ready, concerns=concerns
    )


PROGRAMS = (
    _verbs("ibv_rc_pingpong", "-e -g 0 -n COUNT", 50, 1500, "libibverbs, with completion events"),
    _verbs(
        "ibv_srq_pingpong", "-g 0 -n COUNT", 50, 1000, "16 queue pairs, a shared receive queue",
        ("*srq*",),
    ),
    Program(
        "pyverbs", "rdma-core's pyverbs: a queue pair writes to itself and prints events",
        f"python3 {EVENTS} COUNT", "python3", 0, 2,
        concerns=(
            "event-*", "cq-overrun", "device-fatal", "gid-vanishes", "port-*", "key-locked",
        ),
    ),
    _verbs(
        "ib_write_lat", "-x 0 -n COUNT", 100, 3000, "perftest, which polls",
        (
            "wire-*", "cqe-lost", "request-lost", "ack-lost", "registers-lost", "payload-flip",
            "slow-drain", "hung-wr", "doorbell-ignored",
        ),
    ),
    _cm(
        "rping", f"rping -c -a {SERVER} -C COUNT", "rping -s", 10, 250, "librdmacm's example",
        ("cm-*", "mad-*", *_FEW),
    ),
    _cm(
        "rstream", f"rstream -s {SERVER} -S 4096 -C COUNT", "rstream", 50, 1500, "rsockets",
        ("wire-*", "hung-wr", "wc-wr-flush-err", "port-*"),
    ),
    _verbs(
        _UCX, "-t tag_lat -s 64 -w 10 -n COUNT", 50, 6000, "UCX: tagged messages over RC",
        (*_VERBS, "wire-lossy"), 13337,
    ),
    _verbs(
        "fi_pingpong", "-p verbs -e msg -S 64 -I COUNT", 50, 1200, "libfabric's provider verbs",
        (*_VERBS, "cm-r*"), 47592,
    ),
    Program(
        "nvme-rdma", "the kernel's NVMe over Fabrics, fio compares each block",
        f"modprobe nvme-rdma && nvme connect -t rdma -n blue -a {SERVER} -s 4420 "
        "--reconnect-delay=1 --ctrl-loss-tmo=8 || exit 1\n"
        "until [ -b /dev/nvme0n1 ]; do sleep 0.1; done\n" + _FIO.format(disk="/dev/nvme0n1"),
        "rdma_cm", 1, 2, before=NVME_TARGET.format(kib=256 << 10, address=SERVER), limit=15.0,
        after="nvme disconnect -n blue", left="ls -d /sys/class/nvme/nvme*",
        concerns=("reg-mr-*", "qp-to-*", "map-icm-*", "payload-flip", *_FEW),
    ),
    Program(
        "rnbd", "the kernel's RTRS and RNBD, fio compares each block", _MAP, "rdma_cm", 1, 2,
        before="modprobe rnbd-server", limit=15.0, after=_UNMAP, rnbd=True,
        left="ls -d /sys/class/rtrs-*/*/ /sys/block/rnbd* | grep -vw ctl",
        concerns=("rtrs-*", "payload-flip", *_FEW),
    ),
    Program(
        "modprobe", "the kernel's drivers are loaded anew; ibv_devinfo", _RELOAD, "", 0, 0,
        limit=60.0, loads=True,
    ),
    Program(
        "nfs-rdma", "the kernel's NFS over RDMA, fio compares each block", _MOUNT, "rdma_cm", 1, 2,
        before=_SHARE, limit=15.0, after="umount -f -l /mnt", nfs=True,
        left="grep ^v4 /proc/fs/nfsfs/servers",
        concerns=("reg-mr-*", "*-flip", "wire-lossy", *_FEW),
    ),
)  # fmt: skip
BY_NAME = {program.name: program for program in PROGRAMS}
