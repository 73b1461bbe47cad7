"""Archives for guests: what is unpacked over `/` of a running one, and what one boots from.

Not part of `make setup`: fetched when one is first asked for, so that the root of all other guests
stays small.
"""

from __future__ import annotations

import inspect
import io
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bluebridge.images.apt import Packages
from bluebridge.images.cache import Cache, file_digest
from bluebridge.images.code_digest import code_digest
from bluebridge.images.recipes.guest import GuestRecipe
from bluebridge.images.recipes.guest_contents import MODULES
from bluebridge.images.recipes.kernel import KernelRecipe, ModuleTree
from bluebridge.images.recipes.recipe import Recipe
from bluebridge.images.report import run
from bluebridge.images.unpack import LIBRARIES, prune, prune_libraries, unpack

DEBUG_PROGRAMS = ("strace", "gdb", "gdbserver", "trace-cmd", "perf", "nano", "bash", "ltrace")
DEBUG_PACKAGES = (
    *("strace", "ltrace", "gdb", "gdbserver", "trace-cmd", "linux-perf", "nano", "bash"),
    "ncurses-base",
)

TESTPMD = "usr/bin/dpdk-testpmd"
PLUGINS = f"{LIBRARIES}/dpdk"
"""The folder of drivers; libraries that testpmd is linked to are links to some."""
_LINKED = (
    *("bitratestats25", "bpf25", "cmdline25", "common-dpaax25", "crypto-scheduler25"),
    *("cryptodev25", "dmadev25", "eventdev25", "gro25", "gso25", "ip-frag25", "latencystats25"),
    *("mempool-dpaa25", "metrics25", "net-bnxt25", "net-bond25", "net-dpaa25", "net-i40e25"),
    *("net-iavf25", "net-ice25", "net-ixgbe25", "net-mlx5-25", "pcapng25", "pdump25", "rcu25"),
    *("reorder25", "sched25", "security25", "timer25"),
)
"""Libraries that testpmd is linked to: drivers of other adapters, too, whose options it knows."""
_DRIVERS = ("mempool-ring25", "net-mlx4-25", "net-virtio25")

CONNECTX5_MODULES = ("mlx5_core", "mlx5_ib")
LOADER = Path(__file__).parents[1] / "guest" / "bluebridge-mlx5"
"""The script that binds a ConnectX-5 to the kernel's driver."""
LEVEL = 10
"""The level of zstd: a third of the size, in some seconds, once for each guest root."""


class GuestArchiveRecipe(Recipe):
    """A tar file `archive`, of the packages of `requests`: paths are below the guest's root."""

    archive: str
    requests: tuple[tuple[str, ...], ...] = ()
    """Lines for apt-get; the packages of later ones lie over those of earlier ones."""
    kept: tuple[str, ...] = ()
    """The paths that stay of the packages, besides shared libraries that these need."""
    opened: tuple[str, ...] = ()
    """The libraries that programs open by name, besides those that they are linked with."""
    modules: tuple[str, ...] = ()
    """The kernel's modules that are in it, with those that they need; `depmod` finds them."""

    def __init__(self, cache: Cache, packages: Packages, guest: GuestRecipe) -> None:
        super().__init__(cache, packages)
        self.guest = guest

    def keep(self, root: Path) -> None:
        """Remove what guests do not need from the unpacked packages."""
        keep(root, self.kept)

    def inputs(self) -> Sequence[object]:
        code = code_digest(Path(inspect.getfile(unpack)))
        found = [self.packages.resolve(request) for request in self.requests]
        return [found, self.guest.key(), code, *self.modules]

    def _add_modules(self, root: Path) -> None:
        kernel = self.guest.kernel
        place = Path("usr/lib/modules") / kernel.release()
        tree = ModuleTree(kernel.folder() / "root" / place)
        for path, content in tree.closure(self.modules).items():
            (root / place / path).parent.mkdir(parents=True, exist_ok=True)
            (root / place / path).write_bytes(content)

    def build(self, folder: Path) -> None:
        root = folder / "root"
        unpack([each for request in self.requests for each in self.packages.fetch(request)], root)
        self.keep(root)
        prune_libraries(root, self.opened)
        self._add_modules(root)
        base = self.guest.folder() / "root"
        with tarfile.open(folder / self.archive, "w") as archive:
            for path in lacking(root, base):
                archive.add(path, path.relative_to(root).as_posix(), recursive=False)
        shutil.rmtree(root)


def keep(root: Path, kept: Sequence[str]) -> None:
    """Remove all but shared libraries and the paths `kept`."""
    folders = [f"{LIBRARIES}/{path.name}" for path in (root / LIBRARIES).glob("*/")]
    others = ("[!u]*", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64")
    prune(root, (*others, *folders), kept)


def lacking(root: Path, base: Path) -> Iterator[Path]:
    """Yield the files of `root` that `base` does not have."""
    for path in sorted((root / "usr").rglob("*")):
        inside = base / path.relative_to(root)
        if not path.is_dir() and not (inside.exists() or inside.is_symlink()):
            yield path


class DebugToolsRecipe(GuestArchiveRecipe):
    """`debug.tar`: tools for looking at programs and at the kernel (`up --image debug`)."""

    name = "debug-tools"
    archive = "debug.tar"
    requests = (("install", *DEBUG_PACKAGES),)
    kept = (
        *(f"usr/bin/{name}" for name in DEBUG_PROGRAMS),
        "usr/share/gdb",
        "usr/share/nano",
        "usr/share/terminfo",
        "usr/libexec/perf-core",
        f"{LIBRARIES}/trace-cmd",
        f"{LIBRARIES}/traceevent",
    )
    opened = ("libthread_db.so.1",)  # by which gdb lists a program's threads


class DpdkRecipe(GuestArchiveRecipe):
    """`dpdk.tar`: testpmd with the drivers of ConnectX-3 and virtio-net.

    dpdk-dev, which has testpmd, comes without its dependencies: those are compilers and headers.
    """

    name = "dpdk"
    archive = "dpdk.tar"
    requests = (
        ("install", *(f"librte-{name}" for name in (*_LINKED, *_DRIVERS))),
        ("download", "dpdk-dev"),
    )
    kept = (TESTPMD, PLUGINS)


class MessageLibrariesRecipe(GuestArchiveRecipe):
    """`messages.tar`: UCX and libfabric with their measuring programs, for `bluebridge atlas`.

    Of UCX's plug-ins it has those for verbs: those for graphics cards need 200 MB of compilers.
    """

    name = "message-libraries"
    archive = "messages.tar"
    requests = (("install", "ucx-utils", "libfabric-bin"),)
    kept = (
        "usr/bin/ucx_perftest",
        "usr/bin/fi_pingpong",
        *(
            f"{LIBRARIES}/ucx/libuct_{part}.so.0{end}"
            for part in ("ib", "ib_mlx5", "rdmacm")
            for end in ("", ".0.0")
        ),
        f"{LIBRARIES}/pmix2/lib",
    )


class OpenMpiRecipe(GuestArchiveRecipe):
    """`mpi.tar`: Open MPI over UCX and libfabric, which `messages.tar` has, and mpi4py to use it.

    The links by which Debian chooses an MPI are not made: programs have names with its name.
    """

    name = "open-mpi"
    archive = "mpi.tar"
    requests = (("install", "openmpi-bin", "python3-mpi4py"),)
    kept = (
        *(f"usr/bin/{name}" for name in ("mpirun.openmpi", "prte", "prted", "prterun")),
        *(f"usr/share/{name}" for name in ("openmpi", "prte", "pmix")),
        *(f"{LIBRARIES}/{name}" for name in ("openmpi/lib", "pmix2")),
        "usr/lib/python3/dist-packages/mpi4py",
    )


class NfsRecipe(GuestArchiveRecipe):
    """`nfs.tar`: client and server of NFSv4 with their transport over RDMA, for `atlas`."""

    name = "nfs"
    archive = "nfs.tar"
    requests = (("install", "nfs-kernel-server", "nfs-common"),)
    kept = tuple(f"usr/sbin/{name}" for name in ("exportfs", "rpc.mountd", "rpc.nfsd", "mount.nfs"))
    modules = ("rpcrdma", "nfsd", "nfsv4")

    def keep(self, root: Path) -> None:
        super().keep(root)
        prune(root, ["usr/libexec"])


class SrpRecipe(GuestArchiveRecipe):
    """`srp.tar`: the kernel's modules for SCSI over RDMA (SRP), initiator and target with disks."""

    name = "srp"
    archive = "srp.tar"
    modules = ("ib_srp", "ib_srpt", "target_core_iblock", "sd_mod")


class ConnectX5Recipe(Recipe):
    """`connectx5.tar`: modules of one of Debian's kernels for a ConnectX-5, and their loader.

    `depmod` in the guest finds them. Of what these modules depend on, guests have a part anyway.
    """

    name = "connectx5"
    archive = "connectx5.tar"

    def __init__(self, cache: Cache, packages: Packages, kernel: KernelRecipe) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel
        self.name = kernel.named(type(self).name)

    def inputs(self) -> Sequence[object]:
        return [self.kernel.key(), CONNECTX5_MODULES, MODULES, file_digest(LOADER)]

    def build(self, folder: Path) -> None:
        modules = connectx5_modules(ModuleTree(self.kernel.modules()))
        write_connectx5(folder / self.archive, self.kernel.release(), modules)


def connectx5_modules(tree: ModuleTree) -> dict[Path, bytes]:
    """Return the card's modules that guests of any card lack, with their paths in `tree`.

    A kernel that has some of them built in has no such modules.
    """
    there = tree.closure(name for name in MODULES if name in tree)
    wanted = tree.closure(name for name in CONNECTX5_MODULES if name in tree)
    return {path: module for path, module in wanted.items() if path not in there}


def write_connectx5(path: Path, release: str, modules: Mapping[Path, bytes]) -> None:
    """Write an archive of the loader and of modules of the kernel of that release."""
    folder = Path("usr/lib/modules") / release
    with tarfile.open(path, "w") as archive:
        archive.add(LOADER, f"usr/sbin/{LOADER.name}")
        for each, content in modules.items():
            entry = tarfile.TarInfo(str(folder / each))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


class BootFilesRecipe(Recipe):
    """`vmlinuz`, the kernel as boot loaders start it, and `root.zst`, the guest's root."""

    name = "boot-files"

    def __init__(
        self, cache: Cache, packages: Packages, kernel: KernelRecipe, guest: GuestRecipe
    ) -> None:
        super().__init__(cache, packages)
        self.kernel = kernel
        self.guest = guest

    def inputs(self) -> Sequence[object]:
        return [self.kernel.key(), self.guest.key()]

    def build(self, folder: Path) -> None:
        image = f"root/boot/vmlinuz-{self.kernel.release()}"
        shutil.copyfile(self.kernel.folder() / image, folder / "vmlinuz")
        root = self.guest.folder() / "initrd.cpio"
        words = ["zstd", "-q", f"-{LEVEL}", "-T0", str(root), "-o", f"{folder}/root.zst"]
        run(words, what="compress the guest's root")
