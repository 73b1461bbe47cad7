"""The container image, made and used as docs/container.md says, by podman and without rights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEGABYTES = 700
"""More than that nobody wants to fetch for each job."""
NAME = "localhost/bluebridge"
LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
CONFINED = ("--network", "none", "--cap-drop", "all", "--user", "1000:1000", "-e", "HOME=/tmp")
INSIDE = '''\
"""A project's test in the container: guests, their adapters, and the server's sandbox."""

from pathlib import Path


def test_a_pair_is_there(pair):
    for guest in (pair.a, pair.b):
        guest.run("test -e /sys/bus/pci/drivers/vfio-pci")
    own = _status(Path("/proc/self"))
    (server,) = [path for path in Path("/proc").glob("[0-9]*") if _serves(path)]
    confined = _status(server)
    assert confined["NoNewPrivs"] == "1"
    assert int(confined["Seccomp_filters"]) > int(own["Seccomp_filters"])


def _status(process):
    lines = (process / "status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _serves(process):
    try:
        words = (process / "cmdline").read_bytes().split(b"\\0")
    except OSError:
        return False
    return b"bluebridge.device" in words
'''
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        shutil.which("podman") is None,
        reason="this machine has no podman, so the container image was neither made nor run",
    ),
]


class Podman:
    """podman with a store of its own, which holds nothing but the image of this test."""

    def __init__(self, folder: Path, state: str) -> None:
        """Have images in `folder`, and in `state`, of at most 50 characters, what runs."""
        place = ("--root", str(folder / "root"), "--runroot", state)
        # crun, which comes first in Debian, refuses cgroups in hybrid mode; runc takes all.
        runtime = ("--runtime", "runc") if shutil.which("runc") else ()
        self._words = ("podman", *place, "--cgroup-manager", "cgroupfs", *runtime)

    def __call__(self, *words: str) -> str:
        """Return what a command of podman's prints; a failure is the test's."""
        done = subprocess.run([*self._words, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *words: str, options: tuple[str, ...] = ()) -> str:
        """Run words in a new container that may do nothing on the host; return its output."""
        return self("run", "--rm", *LIMITS, *CONFINED, *options, NAME, *words)


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman, with the image made by `bluebridge image build` and taken over by `podman load`."""
    folder = tmp_path_factory.mktemp("podman")
    file = folder / "image.tar"
    made = subprocess.run(
        [sys.executable, "-m", "bluebridge.host_tools.cli", "image", "build", file],
        env={**os.environ, "BLUEBRIDGE_PURE": ""}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp") as state:
        podman = Podman(folder, state)
        podman("load", "--input", str(file))
        file.unlink()
        yield podman
        podman("rmi", "--all", "--force")


def test_the_image_is_small_enough_for_a_job(podman: Podman) -> None:
    (image,) = json.loads(podman("inspect", NAME))
    assert image["Size"] < MEGABYTES * 1_000_000


def test_krping_runs_from_the_snapshot_and_compiled(podman: Podman) -> None:
    """No guest boots first, nothing is built, and the device runs as native code."""
    string = "addr=192.168.69.127,port=9999,count=100,validate"
    said = podman.run(
        "sh", "-c", f'bluebridge doctor; bluebridge krping "server,{string}" "client,{string}" 2>&1'
    )
    assert "100 of 100 iterations validated" in said
    assert "ok      device" in said and "compiled: /" in said
    assert "booting a guest once" not in said


def test_a_projects_tests_run_in_it(podman: Podman, tmp_path: Path) -> None:
    """The plugin is there, and the server gives up more than the container's own measures take."""
    (tmp_path / "test_project.py").write_text(INSIDE)
    tmp_path.chmod(0o755)
    line = ("pytest", "-p", "no:cacheprovider", "-q", "/work")
    assert "1 passed" in podman.run(*line, options=("--volume", f"{tmp_path}:/work:ro"))
