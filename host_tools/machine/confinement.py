"""What QEMU may do: a guest that takes it over has no more than the files and devices named here.

Landlock is put around the process before it starts, and seccomp by QEMU itself (`SECCOMP`), which
knows what it calls. What this machine lacks is left out (`bluebridge doctor` lists it).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bluebridge.cache_root import cache_root

SECCOMP = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
"""QEMU's own filter of system calls: no new process or program, no other user, no priorities."""
LANDLOCK_RIGHTS_OF = 8
"""The version of Landlock whose rights are taken away, as far as the kernel has them. The ninth
adds the connect to a socket with a name: QEMU connects to the device server's, anywhere."""
_PROGRAMS = ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")
_PARTS = (
    *("lib", "lib64", "libexec", "share/qemu", "share/seabios"),
    *("pc-bios", "build/pc-bios", "build/qemu-bundle"),
)
"""What QEMU loads libraries and data from: beside the folder of its program, or in its source."""
_READ = ("/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system", "/sys/kernel/mm")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/kvm")


@contextlib.contextmanager
def confined(
    program: Path, sockets: Path, read: Iterable[Path], written: Iterable[Path], saved: Path | None
) -> Iterator[Callable[[], None] | None]:
    """Yield what a child calls before it becomes QEMU; None where this machine has no Landlock.

    QEMU, the `program`, may make sockets in the folder `sockets`, read the files and folders
    `read` and those of the cache, write to the files `written`, and make a file in `saved`.
    """
    try:
        import landlockpy
    except ImportError:
        yield None
        return
    if not landlockpy.supported():
        yield None
        return
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope, fs_for_abi

    reading = AccessFS.READ_FILE | AccessFS.READ_DIR
    writing = AccessFS.READ_FILE | AccessFS.WRITE_FILE
    handled = fs_for_abi(LANDLOCK_RIGHTS_OF)
    every_port = AccessNet.BIND_TCP | AccessNet.CONNECT_TCP
    scopes = Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET
    with Ruleset(handled_fs=handled, handled_net=every_port, scoped=scopes) as rules:

        def allow(path: Path, rights: AccessFS) -> None:
            if path.exists():
                of_files = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.EXECUTE
                of_files |= AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
                rules.allow_path(path, (rights if path.is_dir() else rights & of_files) & handled)

        own = program.resolve()  # not its folder, which may be the user's
        parts = (own.parent.parent / part for part in _PARTS)
        for each in (*map(Path, _PROGRAMS), Path(cache_root()), own, *parts):
            allow(each, reading | AccessFS.EXECUTE)
        for each in (*map(Path, _READ), *read):
            allow(each, reading)
        for device in _DEVICES:
            allow(Path(device), writing | AccessFS.IOCTL_DEV)
        for file in written:
            allow(file, writing)
        allow(sockets, reading | AccessFS.MAKE_SOCK)
        if saved is not None:
            allow(saved, writing | AccessFS.READ_DIR | AccessFS.MAKE_REG | AccessFS.TRUNCATE)
        yield lambda: rules.restrict(no_new_privs=True)
