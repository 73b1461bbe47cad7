"""DPDK's testpmd with the drivers of ConnectX-3 and virtio-net, for guests that ask for it.

Not part of `make setup`: fetched when a program of DPDK is first requested. An archive of what the
guest's root lacks, which is unpacked over `/` of a running guest.
"""

from __future__ import annotations

from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.recipes.guest_archive import GuestArchiveRecipe
from bluebridge.images.unpack import LIBRARIES

PROGRAM = "usr/bin/dpdk-testpmd"
PROGRAMS = ("download", "dpdk-dev")
"""The package that has testpmd, without its dependencies: those are compilers and headers."""
PLUGINS = f"{LIBRARIES}/dpdk"
"""The folder of drivers; libraries that testpmd is linked to are links to some."""
_LINKED = (
    "bitratestats25",
    "bpf25",
    "cmdline25",
    "common-dpaax25",
    "crypto-scheduler25",
    "cryptodev25",
    "dmadev25",
    "eventdev25",
    "gro25",
    "gso25",
    "ip-frag25",
    "latencystats25",
    "mempool-dpaa25",
    "metrics25",
    "net-bnxt25",
    "net-bond25",
    "net-dpaa25",
    "net-i40e25",
    "net-iavf25",
    "net-ice25",
    "net-ixgbe25",
    "net-mlx5-25",
    "pcapng25",
    "pdump25",
    "rcu25",
    "reorder25",
    "sched25",
    "security25",
    "timer25",
)
"""Libraries that testpmd is linked to: drivers of other adapters, too, whose options it knows."""
REQUEST = (
    "install",
    *(f"librte-{name}" for name in _LINKED),
    "librte-mempool-ring25",
    "librte-net-mlx4-25",
    "librte-net-virtio25",
)


class DpdkRecipe(GuestArchiveRecipe):
    """`dpdk.tar`: programs, libraries and plug-ins."""

    name = "dpdk"
    archive = "dpdk.tar"
    requests = (REQUEST, PROGRAMS)

    def keep(self, root: Path) -> None:
        keep_programs(root)


def keep_programs(root: Path) -> None:
    """Remove all but testpmd, libraries and DPDK's drivers."""
    folders = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).iterdir() if path.is_dir()]
    others = ("etc", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64", "var")
    prune.remove(root, (*others, *folders), kept=(PROGRAM, PLUGINS))
