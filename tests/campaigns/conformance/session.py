"""Kinds of pairs under which programs are run, and such a pair: drivers, addresses, a GID."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Self

from bluebridge.device import cards
from bluebridge.device.layout.ntb import models
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.device.server.options import DEFAULTS, BridgeOptions, ServerOptions
from bluebridge.host_tools.agent import Command
from bluebridge.host_tools.errors import LabError, Reporter
from bluebridge.host_tools.lab.artefacts import (
    dpdk_archive,
    message_libraries,
    open_mpi,
    srp_modules,
    unpack,
)
from bluebridge.host_tools.lab.config import LabConfig
from bluebridge.host_tools.lab.pair import Pair
from bluebridge.host_tools.lab.software import GuestSoftware
from bluebridge.host_tools.machine.vm import Vm

ADDRESSES = {"a": "10.9.0.1", "b": "10.9.0.2"}
_COMPLAINTS = re.compile(
    r"Call Trace|BUG:|WARNING:|blocked for more than|Internal error detected|timed out"
)
_UP_SECONDS = 120.0
_NETDEV = (
    "cat /sys/class/infiniband/rxe0/parent 2> /dev/null || "
    "ls /sys/bus/pci/drivers/mlx[45]_core/0*/net"
)
_WIDEN = f"ip link set $({_NETDEV} | head -n 1) mtu {{mtu}}"


@dataclass(frozen=True)
class Setup:
    """A kind of pair: what the device server is told, and what runs before the HCA is up."""

    name: str
    what: str
    options: ServerOptions = DEFAULTS
    ethernet: bool = True
    """Link layer: Ethernet (RoCE) or InfiniBand."""
    gid_type: str = "IB/RoCE v1"
    """Kind of the GID that programs are told to use, as the kernel's `gid_attrs/types` calls it.

    Empty where programs use the network device only.
    """
    service: str = ""
    """A shell line that runs in guest a from before its HCA comes up to the pair's end."""
    before: str = ""
    """A shell line that runs in both guests before the drivers are loaded."""
    archives: tuple[Callable[[Reporter], Path], ...] = ()
    """Functions that return archives of programs, which the guests have besides."""
    bridge: BridgeOptions | None = None
    """A bridge and DMA engines instead of HCAs, with their drivers loaded."""
    rxe: str = ""
    """The guest that has a virtio NIC and Soft-RoCE in place of an HCA, `a` or `b`."""
    packages: tuple[str, ...] = ()
    """Packages of Debian that guests have besides what every guest has."""
    cpus: int = 2
    """The number of CPUs of a guest, after which drivers choose how many queues they have."""
    mtu: int = 0
    """The MTU of the network devices; 0 leaves the 1500 that they begin with."""
    programs_of: tuple[Setup, ...] = ()
    """Other setups, all of whose programs run under this one as well."""
    without: tuple[str, ...] = ()
    """Patterns of the keys of programs of these that do not."""

    def runs(self, key: str, setups: Collection[Setup]) -> bool:
        """Return whether a program runs under it, by its key and its setups."""
        left_out = any(fnmatch(key, pattern) for pattern in self.without)
        return self in setups or (not left_out and any(each in setups for each in self.programs_of))


ROCE = Setup("roce", "RoCE v1, the default")
INFINIBAND = Setup(
    "infiniband",
    "InfiniBand, managed by the fabric",
    ServerOptions(link="infiniband"),
    ethernet=False,
)
BLUEFLAME = Setup("blueflame", "RoCE v1, sends through BlueFlame", ServerOptions(blueflame="on"))
_OWN_RULES = "echo options mlx4_core log_num_mgm_entry_size=-1 > /etc/modprobe.d/mlx4.conf"
"""The adapter keeps the rules of steering: what ibv_create_flow needs."""
ROCE_V2 = Setup(
    "roce-v2",
    "RoCE v2 of the ConnectX-3 Pro, steering rules kept by the device",
    ServerOptions(pro=True),
    gid_type="RoCE v2",
    before=_OWN_RULES,
)
PACKETS = replace(
    ROCE_V2,
    name="roce-v2-packets",
    what="RoCE v2 again, over a wire of packets",
    options=ServerOptions(pro=True, wire="packets"),
    programs_of=(ROCE_V2,),
)
OPENSM = Setup(
    "opensm",
    "InfiniBand, managed by opensm in guest a",
    ServerOptions(link="infiniband", sm="none"),
    ethernet=False,
    service="modprobe mlx4_core; until [ -e /dev/infiniband/umad0 ]; do sleep 0.1; done; "
    "exec opensm --log_file /var/log/opensm.log",
)
DPDK = Setup(
    "dpdk",
    "RoCE v1, steering rules kept by the device, DPDK's programs in the guests",
    before=_OWN_RULES,
    archives=(dpdk_archive,),
)
RXE_SERVER = Setup(
    "rxe-a",
    "Soft-RoCE in guest a, which has the servers; path MTU 1024",
    ServerOptions(pro=True, wire="packets"),
    gid_type="RoCE v2",
    rxe="a",
)
RXE_CLIENT = replace(
    RXE_SERVER, name="rxe-b", what="Soft-RoCE in guest b, which has the clients", rxe="b"
)
RXE = (
    RXE_SERVER,
    RXE_CLIENT,
    replace(RXE_SERVER, name="rxe-a-4096", what="as rxe-a; path MTU 4096", mtu=4200),
    replace(RXE_CLIENT, name="rxe-b-4096", what="as rxe-b; path MTU 4096", mtu=4200),
)
"""A ConnectX-3 Pro and Linux's Soft-RoCE on one wire of packets."""
_SSH = ("openssh-server", "openssh-client")
_OF_SELFTESTS = (*_SSH, "python3-yaml", "socat")
CONNECTX5 = Setup(
    "connectx5",
    "ConnectX-5, its network device; guests have six CPUs",
    ServerOptions(card=cards.CONNECTX5.name),
    gid_type="",
    packages=("linuxptp", *_OF_SELFTESTS),
    cpus=6,
)
CONNECTX3_NET = Setup(
    "connectx3-net",
    "ConnectX-3, its network device; guests have six CPUs",
    gid_type="",
    packages=_OF_SELFTESTS,
    cpus=6,
)
CONNECTX5_USERS = Setup(
    "connectx5-users",
    "ConnectX-5, RoCE v2: programs that drive the card past the kernel",
    ServerOptions(card=cards.CONNECTX5.name),
    gid_type="RoCE v2",
    archives=(dpdk_archive, message_libraries, open_mpi, srp_modules),
    packages=("python3-scapy", *_SSH),
)
NETWORK = (CONNECTX5, CONNECTX3_NET)
"""The setups for network devices as such."""
CONNECTX5_ROCE = Setup(
    "connectx5-roce",
    "ConnectX-5 in both guests, RoCE v2",
    ServerOptions(card=cards.CONNECTX5.name),
    gid_type="RoCE v2",
    programs_of=(ROCE,),
    without=("drivers/*", "firmware/*", "network/*"),
)
_ON_A = Setup(
    "connectx5-a",
    "ConnectX-5 in guest a, ConnectX-3 Pro in b; RoCE v2",
    ServerOptions(card="connectx5,connectx3", pro=True),
    gid_type="RoCE v2",
    programs_of=(ROCE_V2,),
)
CONNECTX5_SETUPS = (
    CONNECTX5_ROCE,
    replace(
        CONNECTX5_ROCE,
        name="connectx5-packets",
        what="as connectx5-roce, over a wire of packets",
        options=ServerOptions(card=cards.CONNECTX5.name, wire="packets"),
        programs_of=(ROCE_V2,),
    ),
    _ON_A,
    replace(
        _ON_A,
        name="connectx5-b",
        what="ConnectX-3 Pro in guest a, ConnectX-5 in b; RoCE v2",
        options=ServerOptions(card="connectx3,connectx5", pro=True),
    ),
    *(
        replace(
            setup,
            name=f"connectx5-{setup.name}",
            what=f"ConnectX-5 and {setup.what}",
            options=ServerOptions(card=cards.CONNECTX5.name, wire="packets"),
            programs_of=(setup,),
        )
        for setup in (RXE_SERVER, RXE_CLIENT)
    ),
)
"""The setups for the RDMA device of a ConnectX-5, with its like, a ConnectX-3 Pro, Soft-RoCE."""
SETUPS = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, PACKETS, OPENSM, DPDK)


def _bridge_setup(model: BridgeModel) -> Setup:
    identity = f"{model.vendor:04x}:{model.device:04x}"
    what = f"{model.title} {identity} and I/OAT {model.engine}"
    return Setup(f"ntb-{model.name}", what, bridge=BridgeOptions(model.name))


BRIDGES = {model: _bridge_setup(model) for model in models.MODELS}
"""A setup for each bridge model."""
QUICK = (ROCE, BRIDGES[models.GEN4], BRIDGES[models.SWITCHTEC])
"""The setups whose quick programs `make test-all` runs."""


class NotUp(LabError):
    """The HCAs did not come up under the kernel's drivers."""


@dataclass(frozen=True)
class Words:
    """The values of the placeholders in a program's commands."""

    netdev: str
    server6: str
    gids: Mapping[str, int]
    """The index of the GID to use in each guest; empty on InfiniBand."""

    def fill(self, text: str, guest: str) -> str:
        """`text` for `guest` with its placeholders replaced; other braces stay as they are."""
        gid = self.gids.get(guest)
        values = {
            "{server}": ADDRESSES["a"],
            "{client}": ADDRESSES["b"],
            "{server6}": self.server6,
            "{netdev}": self.netdev,
            "{g}": "" if gid is None else f"-g {gid}",
            "{x}": "" if gid is None else f"-x {gid}",
        }
        for name, value in values.items():
            text = text.replace(name, value)
        return text


class Session:
    """Context manager around a `Pair`. Entering it raises `LabError`, `NotUp` once guests run."""

    def __init__(self, setup: Setup, logs: Path, bus_log: bool = False) -> None:
        """Transcripts go to `logs`, and so does the bus log if there is to be one."""
        self.setup = setup
        self._bus_log = bus_log
        self._stack = contextlib.ExitStack()
        self._logs = logs
        self.pair: Pair
        self.words: Words

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            config = LabConfig(
                log=self._logs,
                bus_log=self._bus_log or self.setup.bridge is not None,
                vfio=False,
                hca=self.setup.bridge is None,
                rxe=self.setup.rxe,
                bridge=self.setup.bridge,
                options=self.setup.options,
                cpus=self.setup.cpus,
                software=GuestSoftware(packages=self.setup.packages),
            )
            self.pair = stack.enter_context(Pair(config))
            try:
                self._prepare(stack)
            except LabError as error:
                raise NotUp(error.what, error.mend, error.transcript) from error
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _prepare(self, stack: contextlib.ExitStack) -> None:
        if self.setup.bridge:
            self.pair.probe_bridges()
            self.words = Words("", "", {})
            return
        if self.setup.service:
            stack.callback(_end, self.pair.a.agent.start(self.setup.service))
        if self.setup.archives:
            archives = [archive(Reporter(quiet=True)) for archive in self.setup.archives]
            self.pair.both(partial(unpack, archives=archives))
            self.run_in_both("depmod")  # some bring modules
        if self.setup.before:
            self.run_in_both(self.setup.before)
        self.pair.together(
            *(
                partial(bring_up, machine, self.pair.config.card(machine.name).loader)
                for machine in self.pair.machines
                if not self.pair.config.has_nic(machine.name)  # the lab has loaded Soft-RoCE
            )
        )
        if self.setup.mtu:
            self.pair.both(lambda machine: machine.run(_WIDEN.format(mtu=self.setup.mtu)))
        self.words = self.find_words()

    def find_words(self) -> Words:
        """Return the values of the placeholders now: drivers that come anew may change them."""
        netdev, local = _own_address(self.pair.a)
        _own_address(self.pair.b)  # nobody can send from an address that is not settled yet
        gids = {}
        if self.setup.ethernet and self.setup.gid_type:
            for machine in self.pair.machines:
                gids[machine.name] = _gid(machine, self.setup.gid_type)
        return Words(netdev, local, gids)

    def run_in_both(self, line: str) -> None:
        """Run a shell line in both guests. Raises `LabError` where it fails."""
        self.pair.both(lambda machine: machine.run(line))

    def complaints(self) -> list[str]:
        """Return the lines in which the kernels have complained since the last call."""
        found = []
        for machine in self.pair.machines:
            said = machine.agent.run("dmesg -c", check=True).text.splitlines()
            found += [f"{machine.name}: {line}" for line in said if _COMPLAINTS.search(line)]
        return found

    def tidy(self, after: str) -> None:
        """Run shell line `after`, if any, in both guests: it puts back what a program changed."""
        if after:
            for machine in self.pair.machines:
                machine.agent.run(self.words.fill(after, machine.name), timeout=30)


def bring_up(machine: Vm, loader: str = cards.CONNECTX3.loader) -> None:
    """The kernel's drivers on the HCA, with an address; `LabError` when they do not come up."""
    words = [loader, f"{ADDRESSES[machine.name]}/24"]
    machine.agent.run(words, timeout=_UP_SECONDS, check=True)


def _own_address(machine: Vm) -> tuple[str, str]:
    """The HCA's network device and its link-local IPv6 address."""
    netdev = machine.agent.run(_NETDEV, check=True).text.split()[0]
    return netdev, link_local(machine, netdev, 20)


def link_local(machine: Vm, netdev: str, limit: float) -> str:
    """The link-local IPv6 address of a network device, once nobody else has claimed it.

    Raises `LabError` when that takes more than `limit` seconds.
    """
    line = "until ip -6 -br addr show {} -tentative | grep -q fe80; do sleep 0.1; done; "
    line += "ip -6 -br addr show {} | grep -o 'fe80::[0-9a-f:]*'"
    shown = machine.agent.run(line.replace("{}", netdev), timeout=limit, check=True).text
    return shown.split()[0]


def _gid(machine: Vm, kind: str) -> int:
    """Index of the GID of that kind that stands for the guest's IPv4 address."""
    folder = "/sys/class/infiniband/*/ports/1"
    address = bytes(int(part) for part in ADDRESSES[machine.name].split(".")).hex()
    wanted = f"{address[:4]}:{address[4:]}"
    line = f"cd {folder}; for n in $(seq 0 20); do echo $n $(cat gids/$n gid_attrs/types/$n); done"
    for shown in machine.agent.run(f"{line} 2> /dev/null").text.splitlines():
        number, _, rest = shown.partition(" ")
        gid, _, type_ = rest.partition(" ")
        if gid.endswith(f"ffff:{wanted}") and type_ == kind:
            return int(number)
    raise LabError(f"guest {machine.name} has no GID of type {kind} for its address")


def _end(command: Command) -> None:
    with contextlib.suppress(LabError):
        command.kill()
