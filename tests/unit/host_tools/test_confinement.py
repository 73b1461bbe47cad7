"""A QEMU that was taken over reaches nothing of its host but the files that it was given."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import landlockpy
import pytest

from bluebridge.host_tools import processes
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.confinement import confined

SIGNALS_SINCE = 6
pytestmark = pytest.mark.skipif(not landlockpy.supported(), reason="this kernel has no Landlock")

ATTEMPTS = {
    "read a file of the user": "cat {home}/secret",
    "list the user's folder": "ls {home}",
    "write there": ": > {home}/new",
    "make a file beside the sockets": ": > {sockets}/new",
    "remove another's socket": "rm {sockets}/hca.sock",
    "read what it boots from": "cat {boot}",
    "read its own program": "cat {home}/bin/qemu",
    "read what belongs to it": "cat {home}/share/qemu/rom {home}/pc-bios/rom",
    "read another program": "cat {home}/bin/other",
    "read what others share": "cat {home}/share/keys",
    "change what it boots from": ": >> {boot}",
    "write its transcript": "echo text >> {transcript}",
    "save a snapshot": "echo state > {saved}/state",
    "signal its starter": "kill -0 {parent}",
}
PERMITTED = {
    "read what it boots from",
    "read its own program",
    "read what belongs to it",
    "write its transcript",
    "save a snapshot",
}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """QEMU was built by hand and is in the folder of the user's programs."""
    places = {name: tmp_path / name for name in ("home", "sockets", "saved", "boot", "transcript")}
    places["saved"].mkdir()
    own = ("secret", "bin/qemu", "bin/other", "share/qemu/rom", "share/keys", "pc-bios/rom")
    files = [places["home"] / name for name in own]
    for file in (*files, places["sockets"] / "hca.sock", places["boot"], places["transcript"]):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    yield places


def succeeds(places: dict[str, Path], attempt: str, *, confine: bool) -> bool:
    """Whether a shell in QEMU's place can do something."""
    script = attempt.format(**places, parent=os.getpid())
    with confined(
        places["home"] / "bin" / "qemu",
        places["sockets"],
        [places["boot"]],
        [places["transcript"]],
        places["saved"],
    ) as restrict:
        process = processes.spawn(
            ["/bin/sh", "-c", script],
            stderr=subprocess.DEVNULL,
            confine=restrict if confine else None,
        )
        return process.wait() == 0


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_qemu_was_not_given_is_out_of_reach(places: dict[str, Path], name: str) -> None:
    if "signal" in name and landlockpy.abi_version() < SIGNALS_SINCE:
        pytest.skip("this kernel's Landlock knows no signals")
    assert succeeds(places, ATTEMPTS[name], confine=True) == (name in PERMITTED)


def test_all_of_it_works_without(places: dict[str, Path]) -> None:
    script = " && ".join(ATTEMPTS.values())
    assert succeeds(places, script, confine=False)


def test_a_qemu_that_cannot_be_confined_is_not_started(tmp_path: Path) -> None:
    """One line says so; an exception in the child is no traceback of ours."""

    def refuse() -> None:
        raise OSError("no more layers")

    with pytest.raises(LabError, match="/bin/touch could not be confined"):
        processes.spawn(["/bin/touch", str(tmp_path / "made")], confine=refuse)
    assert list(tmp_path.iterdir()) == []
