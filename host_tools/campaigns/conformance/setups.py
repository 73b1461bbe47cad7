"""The kinds of pairs under which programs are run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bluebridge.device.layout.ntb import models
from bluebridge.device.layout.ntb.models import BridgeModel
from bluebridge.device.server.options import DEFAULTS, BridgeOptions, ServerOptions


@dataclass(frozen=True)
class Setup:
    """A kind of pair: what the device server is told, and what runs before the HCA is up."""

    name: str
    what: str
    options: ServerOptions = DEFAULTS
    ethernet: bool = True
    """Link layer: Ethernet (RoCE) or InfiniBand."""
    gid_type: str = "IB/RoCE v1"
    """Kind of the GID that programs are told to use, as the kernel's `gid_attrs/types` calls it."""
    service: str = ""
    """A shell line that runs in guest a from before its HCA comes up to the pair's end."""
    before: str = ""
    """A shell line that runs in both guests before the drivers are loaded."""
    dpdk: bool = False
    """Whether the guests have DPDK's testpmd."""
    bridge: BridgeOptions | None = None
    """A bridge and DMA engines instead of HCAs, with their drivers loaded."""
    rxe: str = ""
    """The guest that has a virtio NIC and Soft-RoCE in place of an HCA, `a` or `b`."""
    mtu: int = 0
    """The MTU of the network devices; 0 leaves the 1500 that they begin with."""
    programs_of: Setup | None = None
    """Another setup, all of whose programs run under this one as well."""


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
    programs_of=ROCE_V2,
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
    dpdk=True,
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
SETUPS = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, PACKETS, OPENSM, DPDK)


def _bridge_setup(model: BridgeModel) -> Setup:
    identity = f"{model.vendor:04x}:{model.device:04x}"
    what = f"{model.title} {identity} and I/OAT {model.engine}"
    return Setup(f"ntb-{model.name}", what, bridge=BridgeOptions(model.name))


BRIDGES = {model: _bridge_setup(model) for model in models.MODELS}
"""A setup for each bridge model."""
QUICK = (ROCE, BRIDGES[models.SWITCHTEC])
"""The setups of the short run."""
