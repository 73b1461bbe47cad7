"""Programs that look at the device, drivers, the network device, disks, firmware that boots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bluebridge.host_tools.atlas.programs import NVME_TARGET
from bluebridge.host_tools.machine import pings
from bluebridge.host_tools.programs.perftest import IPERF_PORT, listening
from tests.campaigns.conformance.program import (
    FAILED,
    PASSED,
    Program,
    Verdict,
    every_second_has_bytes,
)
from tests.campaigns.conformance.session import (
    ADDRESSES,
    CONNECTX5,
    CONNECTX5_ROCE,
    CONNECTX5_SETUPS,
    CONNECTX5_USERS,
    INFINIBAND,
    OPENSM,
    ROCE,
    ROCE_V2,
    RXE,
    Session,
    Setup,
    bring_up,
)


def programs() -> list[Program]:
    """Listings, management of InfiniBand, drivers coming and going, traffic, disks, a boot."""
    boot = Program("firmware", "iPXE boots a guest from its peer", steps=_boot)
    disks = (*_storage(), _srp())
    return [*_looks(), *_drivers(), *_network(), *_settings(), *_iperf(), *disks, boot]


_LOOKS = {
    "lspci -vvv -d 15b3:": "Kernel driver in use: mlx[45]_core",
    "ibv_devices": "mlx[45]_0",
    "ibv_devinfo -v": "PORT_ACTIVE",
    "rdma link": "state ACTIVE physical_state LINK_UP",
    "rdma resource show": "mlx[45]_0",
    "ibstat": "State: Active",
    "devlink dev info": "driver mlx[45]_core",
}
_ETHERNETS = (ROCE, CONNECTX5)
_EVERY_NET = (*_ETHERNETS, INFINIBAND)
_MANAGEMENT = {
    "sminfo": "sminfo: sm lid",
    "ibnetdiscover": r"\[1\]",
    "ibhosts": "Ca",
    "iblinkinfo": "Active/  LinkUp",
    "perfquery": "PortXmitData",
    "smpquery nodeinfo -D 0": "NodeType",
    "smpquery portinfo -D 0 1": "LinkState:.*Active",
    "smpquery nodedesc -D 0": "Node Description",
    "saquery": "NodeRecord dump",
    "saquery -p": "PathRecord dump",
    "saquery -g": "MCMemberRecord",
}


def _looks() -> Iterator[Program]:
    everywhere = (ROCE, INFINIBAND, ROCE_V2, OPENSM)
    for words, expect in _LOOKS.items():
        of_ethernet = words.startswith(("lspci", "devlink"))
        setups = (*everywhere, CONNECTX5) if of_ethernet else everywhere
        yield Program("devices", words, words, expect=expect, setups=setups, short=True)
    for words, expect in _MANAGEMENT.items():
        yield Program("management", words, words, expect=expect, setups=(INFINIBAND, OPENSM))


def _drivers() -> Iterator[Program]:
    yield from _cycles("mlx4", "mlx4_ib mlx4_en mlx4_core", (ROCE, INFINIBAND))
    yield from _cycles("mlx5", "mlx5_ib mlx5_core", (CONNECTX5, CONNECTX5_ROCE))


def _cycles(family: str, modules: str, setups: tuple[Setup, ...]) -> Iterator[Program]:
    """The drivers of one family of cards go and come, after which a peer answers."""
    bad = f"{family}.*(fail|error|timed out|warn)"
    up = f"bluebridge-{family} {{client}}/24 && ! dmesg | grep -iE '{bad}'"
    cycle = f"dmesg -c > /dev/null; modprobe -r {modules} && {up} || exit 1"
    mine = '"$(lspci -Dn -d 15b3: | cut -d" " -f1)"'
    reload = f"dmesg -c > /dev/null; devlink dev reload pci/{mine} && {up} || exit 1"
    for name, line, limit in (
        (f"unload and load {family} 20 times", f"for i in $(seq 20); do {cycle}; done", 600),
        (f"unload and load {family}", cycle, 60),
        ("devlink dev reload 3 times", f"for i in 1 2 3; do {reload}; done", 120),
    ):
        client = f"{line}; until ping -c 1 -W 1 {{server}}; do :; done"
        yield Program("drivers", name, client, expect=" 1 received", limit=limit, setups=setups)


_CAPTURE = (
    "tcpdump -i {netdev} -c 10 -n icmp > /tmp/capture 2>&1 & "
    "until grep -q listening /tmp/capture; do sleep 0.1; done; "
    "ping -c 10 -i 0.05 {server} > /dev/null; wait; cat /tmp/capture"
)


def _network() -> list[Program]:
    """Network devices, IPoIB on InfiniBand among them: packets small, large, tagged; ethtool."""
    program = partial(Program, "network", setups=_EVERY_NET)
    ping = partial(program, expect=pings.ANSWERED)
    fragments = pings.line("{server}", f"-s 60000 -c 4 -i {pings.SELDOM}")
    tag = (
        "ip link add link {netdev} name v5 type vlan id 5; "
        "ip addr add 10.5.0.%d/24 dev v5; ip link set v5 up; "
    )
    return [
        ping("ping", pings.line("{server}", "-c 20 -i 0.05")),
        ping("ping over IPv6", pings.line("{server6}%{netdev}", "-c 20 -i 0.05")),
        ping("ping of 60000 bytes in fragments", fragments, short=True),
        ping(
            "MTU 9000",
            "ip link set {netdev} mtu 9000 && "
            + pings.line("{server}", "-M do -s 8972 -c 10 -i 0.5"),
            "ip link set {netdev} mtu 9000; sleep 60",
            "ip link show {netdev} | grep -q 'mtu 9000.*state UP'",
            lasting=True,
            after="ip link set {netdev} mtu 1500",
            setups=_ETHERNETS,
        ),
        ping(
            "VLAN 5",
            tag % 2 + pings.line("10.5.0.1", "-c 10 -i 0.1"),
            f"{tag % 1}sleep 60",
            "ip -br addr show v5 | grep -q 'UP.*10.5.0.1'",
            lasting=True,
            after="ip link del v5",
            setups=_ETHERNETS,
        ),
        program("tcpdump of pings", _CAPTURE, expect="10 packets captured"),
        program("ethtool -i", "ethtool -i {netdev}", expect="driver: (mlx4_en|mlx5_core|ib_ipoib)"),
        program(
            "ethtool -k: checksums and large sends of IPoIB",
            "ethtool -k {netdev} | grep '^[rt].*: on'",
            expect=r"(?s)rx-checksumming.*tx-checksumming.*tcp-segmentation-offload",
            setups=(INFINIBAND,),
        ),
        program(
            "ethtool -S",
            "ethtool -S {netdev}",
            expect=r"rx_packets: [1-9]|tx_packets: [1-9]",
            setups=_ETHERNETS,
        ),
        program(
            "ethtool -t",
            "ethtool -t {netdev}",
            expect="PASS",
            # The driver waits for half a second only, which a guest may stand still on a busy host.
            repeat=r"Loopback Test\s+[1-9]",
            setups=_ETHERNETS,
        ),
    ]


_SETTINGS = {
    "ethtool -G": ("ethtool -G {netdev} rx 256 tx 512; ethtool -g {netdev}", "(?s)RX:.*256.*512"),
    "ethtool -L": ("ethtool -L {netdev} combined 1; ethtool -l {netdev}", r"Combined:\s+1\n"),
    "ethtool -A": ("ethtool -A {netdev} rx off tx off; ethtool -a {netdev}", r"RX:\s+off"),
    "ethtool -K": (
        "ethtool -K {netdev} tso off gro off rxvlan off; ethtool -k {netdev}",
        "(?s)tcp-segmentation-offload: off.*rx-vlan-offload: off",
    ),
    "ethtool -X": (
        "ethtool -X {netdev} equal 1; ethtool -x {netdev}",
        r"(?s)0:( +0)+\n.*8:( +0)+\n",
    ),
    "ethtool -s": (
        "ethtool -s {netdev} speed 40000 autoneg off; ethtool {netdev}",
        "Speed: 40000Mb/s",
    ),
}
_USUAL = (
    "ethtool -G {netdev} rx 1024 tx 1024; ethtool -L {netdev} combined 6; "
    "ethtool -A {netdev} rx on tx on; "
    "ethtool -K {netdev} tso on gro on rxvlan on; ethtool -X {netdev} default; "
    "ethtool -s {netdev} autoneg on"
)
_PTP4L = "ptp4l -i {netdev} -m -l 6 --tx_timestamp_timeout 1000"
_FOLLOW = (
    f"phc_ctl {{netdev}} adj 30; {_PTP4L} -s > /tmp/ptp & "
    "until [ $(grep -c ' s2 ' /tmp/ptp) -ge 4 ]; do sleep 0.2; done; kill $!; cat /tmp/ptp"
)


def _settings() -> Iterator[Program]:
    """Settings that ethtool changes and reads back, while the peer answers; the clock of PTP."""
    program = partial(Program, "settings", setups=(CONNECTX5,))
    for name, (line, expect) in _SETTINGS.items():
        answered = pings.line("{server}", "-c 5 -i 0.1")
        yield program(name, f"{line} && {answered}", expect=expect, after=_USUAL)
    yield program("ethtool -T", "ethtool -T {netdev}", expect="PTP Hardware Clock: 0")
    yield program("ethtool -m", "ethtool -m {netdev}", expect="QSFP")
    yield program(
        "ptp4l",
        _FOLLOW,
        f"{_PTP4L} > /tmp/ptp",
        "grep -q LISTENING /tmp/ptp",
        lasting=True,
        expect=r"master offset +-?\d{1,8} s2 ",
    )


def _iperf() -> list[Program]:
    return [
        Program(
            "network",
            f"iperf3 -t {seconds} {way}".strip(),
            f"iperf3 -J -t {seconds} {way} -c {{server}}",
            "iperf3 -s -1 > /dev/null",
            listening(IPERF_PORT),
            judge=every_second_has_bytes,
            limit=seconds + 40,
            setups=_EVERY_NET,
        )
        for seconds in (5, 60)
        for way in ("", "-R")
    ]


_TARGET = f"{NVME_TARGET}touch /run/target\nexec sleep 600\n"
_TIDY = """
cd /sys/kernel/config/nvmet 2> /dev/null && rm -f /run/target ports/1/subsystems/blue && \
rmdir subsystems/blue/namespaces/1 subsystems/blue ports/1 && rmmod brd
"""
_FIO = """
until [ -b {disk} ]; do sleep 0.1; done
fio --name=verify --filename={disk} --direct=1 --ioengine=libaio --iodepth=16 \
--rw={pattern} --bsrange=4k-{largest}k --size={mib}m --verify=crc32c --do_verify=1 --verify_fatal=1
status=$?
"""
_INITIATOR = f"""
modprobe nvme-rdma && nvme connect -t rdma -n blue -a {{{{server}}}} -s 4420 || exit 1
{_FIO}
nvme disconnect -n blue
exit $status
"""


def _storage() -> Iterator[Program]:
    """nvmet-rdma on a RAM disk, nvme-rdma with fio writing, reading back and comparing."""
    for pattern, largest, mib, limit in (
        ("randwrite", 128, 8, 60),
        ("write", 512, 64, 240),
        ("randwrite", 64, 64, 240),
    ):
        short = mib < 64
        yield Program(
            "storage",
            f"nvme-rdma, fio --rw={pattern} --bsrange=4k-{largest}k --size={mib}m --verify=crc32c",
            _INITIATOR.format(disk="/dev/nvme0n1", pattern=pattern, largest=largest, mib=mib),
            _TARGET.format(kib=mib << 10, address="{server}"),
            "[ -e /run/target ]",
            lasting=True,
            expect="WRITE: bw=",
            after=_TIDY,
            limit=limit,
            setups=(ROCE, INFINIBAND, *((*RXE, *CONNECTX5_SETUPS) if short else ())),
            short=short,
        )


# The target calls an initiator that comes by rdma_cm by the address it came to, its own
# (ib_srpt.c: srpt_rdma_cm_req_recv), and has a name of its own by its first GID.
_SRP_TARGET = """
modprobe ib_srpt srpt_service_guid=1 && modprobe target_core_iblock || exit 1
modprobe brd rd_nr=1 rd_size=65536 || exit 1
grep -q configfs /proc/mounts || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/target && mkdir -p srpt core/iblock_0/disk || exit 1
echo udev_path=/dev/ram0 > core/iblock_0/disk/control && echo 1 > core/iblock_0/disk/enable
echo 5555 > srpt/discovery_auth/rdma_cm_port || exit 1
name=$(cut -d: -f5- /sys/class/infiniband/mlx5_0/ports/1/gids/0)
mkdir srpt/$name srpt/$name/$name && cd srpt/$name/$name || exit 1
mkdir lun/lun_0 acls/{server} acls/{server}/lun_0
ln -s /sys/kernel/config/target/core/iblock_0/disk lun/lun_0
ln -s $PWD/lun/lun_0 acls/{server}/lun_0
echo 1 > enable && touch /run/target && exec sleep 600
"""
_SRP_TIDY = """
cd /sys/kernel/config/target/srpt 2> /dev/null && rm -f /run/target && cd 0*/0* && \
echo 0 > enable && rm acls/*/lun_0/lun_0 lun/lun_0/disk && rmdir acls/*/lun_0 acls/* lun/lun_0 && \
cd ../.. && rmdir 0*/0* 0* && cd .. && rmdir core/iblock_0/disk core/iblock_0 srpt && cd / && \
rmmod ib_srpt && rmmod brd
"""
_SRP_INITIATOR = f"""
modprobe ib_srp && modprobe sd_mod || exit 1
guid=0000000000000001
echo id_ext=$guid,ioc_guid=$guid,dest={{{{server}}}}:5555 \
> /sys/class/infiniband_srp/srp-mlx5_0-1/add_target || exit 1
{_FIO}
for port in /sys/class/srp_remote_ports/*; do echo 1 > $port/delete; done
until [ ! -e /sys/block/sda ]; do sleep 0.1; done
exit $status
"""


def _srp() -> Program:
    """SCSI over RDMA: the kernel's target on a RAM disk, its initiator with fio."""
    return Program(
        "storage",
        "SRP, fio --rw=randwrite --bsrange=4k-128k --size=8m --verify=crc32c",
        _SRP_INITIATOR.format(disk="/dev/sda", pattern="randwrite", largest=128, mib=8),
        _SRP_TARGET,
        "[ -e /run/target ]",
        lasting=True,
        expect="WRITE: bw=",
        after=_SRP_TIDY,
        setups=(CONNECTX5_USERS,),
    )


_LOOK = "cat /proc/cmdline; lspci -n -d 15b3:"
_SIGNS = ("initrd=root.zst", "15b3:673c")
"""The initrd on the kernel's command line and the id of the HCA, which a booted guest shows."""


def _boot(session: Session) -> Sequence[Verdict]:
    """Boot guest a so, give its HCA to the kernel, then bring it up as the others expect it."""
    pair = session.pair
    seconds = pair.restart(pair.a.name, pair.network_boot(pair.a.name))
    said = pair.a.run(_LOOK).text
    bring_up(pair.a)
    pair.a.run(f"ping -c 3 -w 20 {ADDRESSES['b']}", timeout=30)
    pair.restart(pair.a.name)
    bring_up(pair.a)
    session.words = session.find_words()
    if not all(sign in said for sign in _SIGNS):
        return [Verdict(FAILED, f"after {seconds:.0f} s it is not what iPXE booted: {said}")]
    return [Verdict(PASSED)]
