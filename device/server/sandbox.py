"""The sandbox of the server: the rights that it gives up once ready, as guests run any drivers.

An exploit of the device then reaches the guests of this server, which share the device anyway, and
the log, but no program, no other file and no network. None of the rights can be taken back.
Protections that this machine lacks are left out; `missing` lists them.
"""

from __future__ import annotations

import errno
import importlib.util
import resource
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from socket import SOCK_CLOEXEC, SOCK_STREAM
from typing import TYPE_CHECKING

from bluebridge.cache_root import cache_root

if TYPE_CHECKING:
    from pyseccomp import SyscallFilter

FILES = 4096
"""Limit of descriptors.

A function has some ten, its vectors, and its guest's memory regions.
"""
ADDRESS_SPACE = 1 << 40
"""Limit of the address space in bytes: each function maps the memory of its guest."""

LANDLOCK_RIGHTS_OF = 9
"""The version of Landlock whose rights are taken away, as far as the kernel has them. The ninth
adds the connect to a socket with a name, which seccomp forbids on all kernels."""

CALLS = """
    access accept4 brk clock_getres clock_gettime clock_nanosleep close close_range dup dup2 dup3
    epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait exit exit_group faccessat faccessat2
    fcntl fdatasync flock fstat fstatfs fsync ftruncate futex futex_waitv getcwd getdents64 getegid
    geteuid getgid getpeername getpid getppid getrandom getrlimit getrusage getsockname getsockopt
    gettid gettimeofday getuid lseek lstat madvise membarrier mincore mkdir mkdirat mmap mprotect
    mremap munmap nanosleep newfstatat open openat pipe2 poll ppoll pread64 preadv pselect6 pwrite64
    pwritev read readlink readlinkat readv recvfrom recvmmsg recvmsg rename renameat renameat2
    restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn sched_getaffinity sched_yield
    select sendmmsg sendmsg sendto set_robust_list setitimer setsockopt shutdown sigaltstack stat
    statfs statx sysinfo tgkill time times umask uname unlink unlinkat write writev
""".split()  # noqa: SIM905
"""System calls that are permitted with any arguments.

Of all others a few are permitted with some arguments; the rest fail.
"""

_CLONE_THREAD = 0x10000
_IOCTLS = (0x541B, 0x5421, 0x5450, 0x5451, 0x5401)  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, TCGETS
_STREAM = SOCK_STREAM | SOCK_CLOEXEC
"""The socket type of each client's connection to libvfio-user, the only one that is permitted.

A pair of datagram sockets could send to any socket that has a name.
"""
_PR_SET_NAME = 15
_PR_SET_VMA = 0x53564D41
_FASTEST = 2
"""Value of CTL_OPTIMIZE for which libseccomp looks a call up in a tree."""


def missing() -> list[str]:
    """List the protections that this machine lacks, each as a line of text."""
    lines = []
    if importlib.util.find_spec("pyseccomp") is None:
        lines.append("no seccomp: the Python package pyseccomp is not installed")
    elif not _filter_supported():
        lines.append("no seccomp: this kernel has none, or there is no libseccomp")
    if importlib.util.find_spec("landlockpy") is None:
        lines.append("no Landlock: the Python package landlockpy is not installed")
    elif not _landlock_supported():
        lines.append("no Landlock: this kernel has none, or it is switched off at boot")
    return lines


def enter(removable: Sequence[Path], writable: Sequence[Path]) -> list[str]:
    """Give up the rights that serving does not need; return what is not in force, a line each.

    `removable` are folders whose files may be removed (sockets), `writable` those where any may be
    made. Raises OSError if the kernel refuses what it has.
    """
    _limit(resource.RLIMIT_NOFILE, FILES)
    _limit(resource.RLIMIT_AS, ADDRESS_SPACE)
    lines = missing()
    if not any("Landlock" in line for line in lines):
        _restrict_files(removable, writable)
    if not any("seccomp" in line for line in lines):
        _restrict_calls()
    return lines


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (limit, limit))


# -- files, network, signals ------------------------------------------------------------------


def _landlock_supported() -> bool:
    import landlockpy

    return landlockpy.supported()


def _restrict_files(removable: Sequence[Path], writable: Sequence[Path]) -> None:
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope, fs_for_abi

    change = AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.MAKE_REG | AccessFS.REMOVE_FILE
    reading = AccessFS.READ_FILE | AccessFS.READ_DIR
    everything = AccessNet.BIND_TCP | AccessNet.CONNECT_TCP
    scopes = Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET
    handled = fs_for_abi(LANDLOCK_RIGHTS_OF)
    with Ruleset(handled_fs=handled, handled_net=everything, scoped=scopes) as rules:
        for path in _sources():
            rules.allow_path(path, reading if path.is_dir() else AccessFS.READ_FILE)
        for folder in removable:
            rules.allow_path(folder, AccessFS.REMOVE_FILE)
        for folder in writable:
            rules.allow_path(folder, reading | change)
        rules.restrict(no_new_privs=True)


def _sources() -> list[Path]:
    """Return what Python may still load modules from: not from the folder where it started."""
    modules = [sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    libraries = [sysconfig.get_config_var("LIBDIR"), "/usr/lib", "/lib", "/lib64"]
    names = [*modules, *libraries, "/etc/localtime", "/usr/share/zoneinfo"]
    package = Path(__file__).parents[2]
    paths = [package, package / "device", *(Path(name) for name in names if name)]
    paths += Path(cache_root()).glob("compiled-*")
    return sorted({path.resolve() for path in paths if path.exists()})


# -- system calls -----------------------------------------------------------------------------


def _filter_supported() -> bool:
    try:
        import pyseccomp
    except (OSError, RuntimeError):  # no libseccomp
        return False
    return pyseccomp.get_api() >= 1 and "Seccomp:" in Path("/proc/self/status").read_text()


def _restrict_calls() -> None:
    """Make all system calls fail but those permitted: no new processes, but threads."""
    import pyseccomp
    from pyseccomp import ALLOW, EQ, ERRNO, MASKED_EQ, Arg

    rules = pyseccomp.SyscallFilter(ERRNO(errno.EPERM))
    _set_quietly(rules, pyseccomp.Attr.CTL_OPTIMIZE, _FASTEST)
    _set_quietly(rules, pyseccomp.Attr.CTL_SSB, 1)  # no mitigation that slows everything else
    for name in CALLS:
        _allow(rules, name)
    rules.add_rule(ALLOW, "socketpair", Arg(1, EQ, _STREAM))
    rules.add_rule(ALLOW, "clone", Arg(0, MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD))
    rules.add_rule(ERRNO(errno.ENOSYS), "clone3")  # its flags are in memory; libc then uses clone
    rules.add_rule(ALLOW, "prlimit64", Arg(2, EQ, 0))
    for option in (_PR_SET_NAME, _PR_SET_VMA):
        rules.add_rule(ALLOW, "prctl", Arg(0, EQ, option))
    for request in _IOCTLS:
        rules.add_rule(ALLOW, "ioctl", Arg(1, EQ, request))
    rules.load()


def _allow(rules: SyscallFilter, name: str) -> None:
    import pyseccomp

    try:
        rules.add_rule(pyseccomp.ALLOW, name)
    except (OSError, ValueError):  # newer than this libseccomp, which thus cannot be asked for it
        return


def _set_quietly(rules: SyscallFilter, attribute: int, value: int) -> None:
    """Set an attribute of the filter; ignore that older libraries do not know it."""
    try:
        rules.set_attr(attribute, value)
    except (OSError, ValueError):
        return
