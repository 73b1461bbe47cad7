"""Programs that look at the device, and the drivers coming and going."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, OPENSM, ROCE, ROCE_V2

_UP = "bluebridge-mlx4 {client}/24"
_MINE = '"$(lspci -Dn -d 15b3: | cut -d" " -f1)"'


def programs() -> list[Program]:
    """Listings, then management of InfiniBand, then loading and resetting."""
    return [*_looks(), *_management(), *_drivers()]


def _looks() -> list[Program]:
    everywhere = (ROCE, INFINIBAND, ROCE_V2, OPENSM)
    return [
        Program("devices", words, words, expect=expect, setups=everywhere, short=True)
        for words, expect in (
            ("lspci -vvv -d 15b3:", "Kernel driver in use: mlx4_core"),
            ("ibv_devices", "mlx4_0"),
            ("ibv_devinfo -v", "PORT_ACTIVE"),
            ("rdma link", "state ACTIVE physical_state LINK_UP"),
            ("rdma resource show", "mlx4_0"),
            ("ibstat", "State: Active"),
            ("devlink dev info", "driver mlx4_core"),
        )
    ]


def _management() -> list[Program]:
    return [
        Program("management", words, words, expect=expect, setups=(INFINIBAND, OPENSM))
        for words, expect in (
            ("sminfo", "sminfo: sm lid"),
            ("ibnetdiscover", r"\[1\]"),
            ("ibhosts", "Ca"),
            ("iblinkinfo", "Active/  LinkUp"),
            ("perfquery", "PortXmitData"),
            ("smpquery nodeinfo -D 0", "NodeType"),
            ("smpquery portinfo -D 0 1", "LinkState:.*Active"),
            ("smpquery nodedesc -D 0", "Node Description"),
            ("saquery", "NodeRecord dump"),
            ("saquery -p", "PathRecord dump"),
            ("saquery -g", "MCMemberRecord"),
        )
    ]


def _drivers() -> list[Program]:
    both = (ROCE, INFINIBAND)
    clean = "! dmesg | grep -iE 'mlx4.*(fail|error|timed out|warn)'"
    cycle = f"dmesg -C; modprobe -r mlx4_ib mlx4_en mlx4_core && {_UP} && {clean} || exit 1"
    reload = f"dmesg -C; devlink dev reload pci/{_MINE} && {_UP} && {clean} || exit 1"
    after = "until ping -c 1 -W 1 {server}; do :; done"
    return [
        Program(
            "drivers",
            "unload and load mlx4 20 times",
            f"for i in $(seq 20); do {cycle}; done; {after}",
            expect=" 1 received",
            limit=240,
            setups=both,
        ),
        Program(
            "drivers",
            "unload and load mlx4",
            f"{cycle}; {after}",
            expect=" 1 received",
            setups=both,
        ),
        Program(
            "drivers",
            "devlink dev reload 3 times",
            f"for i in 1 2 3; do {reload}; done; {after}",
            expect=" 1 received",
            setups=both,
            limit=120,
        ),
    ]
