"""Tests of what a build can reach in its sandbox, and that its processes end with build and caller.

The toolchain is this machine's own `/usr`, so that no artefact is needed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bluebridge.images import sandbox
from bluebridge.images.report import ImageError
from tests.models.until import until

HOST = Path("/")
HOUSE = Path(__file__).parents[3]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A prepared root."""
    folder = tmp_path / "root"
    folder.mkdir()
    sandbox.prepare(folder)
    return folder


def inside(root: Path, script: str) -> tuple[bool, str]:
    return sandbox.run(sandbox.choose_launcher(), HOST, root, ["sh", "-c", script])


def test_output_and_success(root: Path) -> None:
    assert inside(root, "echo out; echo err >&2") == (True, "out\nerr\n")
    assert inside(root, "echo out; exit 97") == (False, "out\n")


@pytest.mark.parametrize(
    "forbidden",
    [
        *("cat /etc/passwd", "touch /usr/bluebridge", "ls /root || ls /home"),
        *("mknod /tmp/disk b 8 0", "mount -t tmpfs none /tmp", "mount -o remount,rw /usr"),
        *("umount /usr", "chroot / true"),
        "unshare --user --map-root-user mount -t tmpfs none /tmp",
        *("test -e /proc/cpuinfo || test -e /sys/kernel", "test -e /dev/kvm || test -e /dev/tty"),
    ],
)
def test_out_of_reach(root: Path, forbidden: str) -> None:
    done, printed = inside(root, forbidden)
    assert not done, printed


def test_what_a_build_needs(root: Path) -> None:
    done, printed = inside(
        root, "echo x >/dev/null; echo y >/tmp/y; cat /tmp/y; head -c1 /dev/zero"
    )
    assert (done, printed) == (True, "y\n\0")


def test_no_privileges_are_left(root: Path) -> None:
    if sandbox.choose_launcher().uid == sandbox.NOBODY:
        assert inside(root, "id -u; id -G") == (True, "65534\n65534\n")
    done, printed = inside(root, "setpriv --dump")
    assert done
    assert "no_new_privs: 1" in printed
    assert "Capability bounding set: [none]" in printed


def test_background_processes_end_with_the_build(root: Path) -> None:
    mark = f"30{time.time_ns() % 10**9}"
    assert inside(root, f"setsid sleep {mark} >/dev/null 2>&1 & sleep 0.2; echo on") == (
        True,
        "on\n",
    )
    assert _running(mark) == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_everything_ends_with_the_caller(root: Path, number: signal.Signals) -> None:
    mark = f"30{time.time_ns() % 10**9}"
    program = (
        "from pathlib import Path; from bluebridge.images import sandbox;"
        "launcher = sandbox.choose_launcher();"
        f"sandbox.run(launcher, Path('/'), Path({str(root)!r}), ['sleep', '{mark}'])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as caller:
        until(lambda: _sleeping(mark))
        caller.send_signal(number)
    until(lambda: _running(mark) == 0)
    assert str(root) not in Path("/proc/self/mounts").read_text()


def test_without_root_namespaces_or_sudo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="to mend it: "):
        sandbox.choose_launcher()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ImageError, match="needs root, sudo or user namespaces"):
        sandbox.choose_launcher()


@pytest.mark.parametrize(
    "call",
    ["sandbox.choose_launcher()", "run(['unshare', '--mount', 'true'], what='build vfio.ko')"],
)
def test_a_plain_chroot_is_told_what_it_lacks(root: Path, call: str) -> None:
    """Its `/` is no mount point, of which `unshare` says nothing that helps."""
    modules = (
        "import os; from bluebridge.images import sandbox; from bluebridge.images.report import run"
    )
    program = f"{modules}; os.chroot('.'); os.chdir('/'); {call}"
    words = [sys.executable, "-c", program]
    own = ("--user", "--map-root-user") if os.geteuid() else ()
    script = 'mount --bind /usr usr && exec "$@"'
    done = subprocess.run(
        ["unshare", *own, "--mount", "sh", "-c", script, "sh", *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stderr.splitlines()[-1]
    assert "/ is no mount point, as in a plain chroot; to mend it: run `mount --bind " in told


def _commands() -> list[list[bytes]]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().split(b"\0")[:-1])
        except OSError:
            continue
    return found


def _sleeping(mark: str) -> bool:
    return [b"sleep", mark.encode()] in _commands()


def _running(mark: str) -> int:
    """How many processes but the caller have `mark` as a word of their command line."""
    return sum(mark.encode() in words for words in _commands())
