"""The kinds of pairs under which programs are run."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.device.options import DEFAULTS, ServerOptions


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
    ntb: str = ""
    """A bridge of this model and DMA engines instead of HCAs, with their drivers loaded."""


ROCE = Setup("roce", "RoCE v1, the default")
INFINIBAND = Setup(
    "infiniband",
    "InfiniBand, managed by the fabric",
    ServerOptions(link="infiniband"),
    ethernet=False,
)
BLUEFLAME = Setup("blueflame", "RoCE v1, sends through BlueFlame", ServerOptions(blueflame="on"))
ROCE_V2 = Setup(
    "roce-v2", "RoCE v2 of the ConnectX-3 Pro", ServerOptions(pro=True), gid_type="RoCE v2"
)
OPENSM = Setup(
    "opensm",
    "InfiniBand, managed by opensm in guest a",
    ServerOptions(link="infiniband", sm="none"),
    ethernet=False,
    service="modprobe mlx4_core; until [ -e /dev/infiniband/umad0 ]; do sleep 0.1; done; "
    "exec opensm --log_file /var/log/opensm.log",
)
SETUPS = (ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, OPENSM)
GEN4 = Setup("ntb-intel-gen4", "Intel NTB 8086:347e and I/OAT 3.4", ntb="intel-gen4")
SWITCHTEC = Setup("ntb-switchtec", "Switchtec 11f8:8531 and I/OAT 3.4", ntb="switchtec")
GEN1 = Setup("ntb-intel-gen1", "Intel NTB 8086:0e0d and I/OAT 3.2", ntb="intel-gen1")
BRIDGES = (GEN4, SWITCHTEC, GEN1)
QUICK = (ROCE, INFINIBAND, SWITCHTEC)
"""The setups of the short run."""
