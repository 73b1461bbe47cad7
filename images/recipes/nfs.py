"""NFS over RDMA for guests of `bluebridge atlas`: the kernel's modules and their programs.

Not part of `make setup`: fetched when it is first requested. An archive of what the guest's root
lacks, which is unpacked over `/` of a running guest; `depmod` there finds the modules.
"""

from __future__ import annotations

from pathlib import Path

from bluebridge.images import prune
from bluebridge.images.modules import ModuleTree
from bluebridge.images.recipes.guest_archive import GuestArchiveRecipe
from bluebridge.images.unpack import LIBRARIES

PROGRAMS = ("exportfs", "rpc.mountd", "rpc.nfsd", "mount.nfs")
MODULES = ("rpcrdma", "nfsd", "nfsv4")


class NfsRecipe(GuestArchiveRecipe):
    """`nfs.tar`: client and server of NFSv4, with their transport over RDMA."""

    name = "nfs"
    archive = "nfs.tar"
    requests = (("install", "nfs-kernel-server", "nfs-common"),)

    def keep(self, root: Path) -> None:
        programs = [f"usr/sbin/{name}" for name in PROGRAMS]
        folders = [path for path in (root / LIBRARIES).iterdir() if path.is_dir()]
        inside = [path.relative_to(root).as_posix() for path in folders]
        others = ("etc", "usr/[!l]*", "usr/lib/[!x]*", "usr/lib64", "usr/libexec", "var")
        prune.remove(root, (*others, *inside), programs)
        kernel = self.guest.kernel
        modules = Path("usr/lib/modules") / kernel.release()
        tree = ModuleTree(kernel.folder() / "root" / modules)
        for path, content in tree.closure(MODULES).items():
            (root / modules / path).parent.mkdir(parents=True, exist_ok=True)
            (root / modules / path).write_bytes(content)
