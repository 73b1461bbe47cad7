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
    INFINIBAND,
    OPENSM,
    ROCE,
    ROCE_V2,
    RXE,
    Session,
    bring_up,
)


def programs() -> list[Program]:
    """Listings, management of InfiniBand, drivers coming and going, traffic, disks, a boot."""
    boot = Program("firmware", "iPXE boots a guest from its peer", steps=_boot)
    return [*_looks(), *_drivers(), *_network(), *_iperf(), *_storage(), boot]


_LOOKS = {
    "lspci -vvv -d 15b3:": "Kernel driver in use: mlx4_core",
    "ibv_devices": "mlx4_0",
    "ibv_devinfo -v": "PORT_ACTIVE",
    "rdma link": "state ACTIVE physical_state LINK_UP",
    "rdma resource show": "mlx4_0",
    "ibstat": "State: Active",
    "devlink dev info": "driver mlx4_core",
}
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
        yield Program("devices", words, words, expect=expect, setups=everywhere, short=True)
    for words, expect in _MANAGEMENT.items():
        yield Program("management", words, words, expect=expect, setups=(INFINIBAND, OPENSM))


def _drivers() -> Iterator[Program]:
    up = "bluebridge-mlx4 {client}/24 && ! dmesg | grep -iE 'mlx4.*(fail|error|timed out|warn)'"
    cycle = f"dmesg -C; modprobe -r mlx4_ib mlx4_en mlx4_core && {up} || exit 1"
    mine = '"$(lspci -Dn -d 15b3: | cut -d" " -f1)"'
    reload = f"dmesg -C; devlink dev reload pci/{mine} && {up} || exit 1"
    for name, line, limit in (
        ("unload and load mlx4 20 times", f"for i in $(seq 20); do {cycle}; done", 240),
        ("unload and load mlx4", cycle, 60),
        ("devlink dev reload 3 times", f"for i in 1 2 3; do {reload}; done", 120),
    ):
        client = f"{line}; until ping -c 1 -W 1 {{server}}; do :; done"
        yield Program("drivers", name, client, expect=" 1 received", limit=limit)


_CAPTURE = (
    "tcpdump -i {netdev} -c 10 -n icmp > /tmp/capture 2>&1 & "
    "until grep -q listening /tmp/capture; do sleep 0.1; done; "
    "ping -c 10 -i 0.05 {server} > /dev/null; wait; cat /tmp/capture"
)


def _network() -> list[Program]:
    """mlx4_en on Ethernet, IPoIB on InfiniBand: packets small, large, tagged; ethtool."""
    program = partial(Program, "network")
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
            setups=(ROCE,),
        ),
        ping(
            "VLAN 5",
            tag % 2 + pings.line("10.5.0.1", "-c 10 -i 0.1"),
            f"{tag % 1}sleep 60",
            "ip -br addr show v5 | grep -q 'UP.*10.5.0.1'",
            lasting=True,
            after="ip link del v5",
            setups=(ROCE,),
        ),
        program("tcpdump of pings", _CAPTURE, expect="10 packets captured"),
        program("ethtool -i", "ethtool -i {netdev}", expect="driver: (mlx4_en|ib_ipoib)"),
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
            setups=(ROCE,),
        ),
        program(
            "ethtool -t",
            "ethtool -t {netdev}",
            expect="PASS",
            # The driver waits for half a second only, which a guest may stand still on a busy host.
            repeat=r"Loopback Test\s+[1-9]",
            setups=(ROCE,),
        ),
    ]


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
        )
        for seconds in (5, 60)
        for way in ("", "-R")
    ]


_TARGET = f"{NVME_TARGET}touch /run/target\nexec sleep 600\n"
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
            _INITIATOR.format(pattern=pattern, largest=largest, mib=mib),
            _TARGET.format(kib=mib << 10, address="{server}"),
            "[ -e /run/target ]",
            lasting=True,
            expect="WRITE: bw=",
            after=_TIDY,
            limit=limit,
            setups=(ROCE, INFINIBAND, *(RXE if short else ())),
            short=short,
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
