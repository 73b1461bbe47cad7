"""The parts of the commands that need no guest: words, places, names, messages."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bluebridge.device.mlx4.settings.config import Features, HcaConfig
from bluebridge.host_tools import arguments
from bluebridge.host_tools.agent import Agent, Completed
from bluebridge.host_tools.commands import copy, ps, run
from bluebridge.host_tools.commands.copy import Place
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import control, keeper
from bluebridge.host_tools.keeper.control import Control, ask
from bluebridge.host_tools.lab import folders
from bluebridge.host_tools.lab.config import LabConfig

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("line", "ours", "command"),
    [
        ("run a -- ls -l", "run a", "ls -l"),
        ("run a ls -l", "run a", "ls -l"),
        ("run a --timeout 5 ls --timeout 7", "run a --timeout 5", "ls --timeout 7"),
        ("run --timeout 5 a -- --x -- y", "run --timeout 5 a", "--x -- y"),
        ("run --timeout=5 a ls", "run --timeout=5 a", "ls"),
        ("run a", "run a", ""),
        ("run a --", "run a", ""),
        ("run -h", "run -h", ""),
        ("up --cold -- --link infiniband", "up --cold", "--link infiniband"),
        ("up --cold", "up --cold", ""),
        ("up -- A=b --", "up", "A=b --"),
    ],
)
def test_where_the_command_begins(line: str, ours: str, command: str) -> None:
    name, *words = line.split()
    split = {"run": run.split, "up": arguments.split}[name]
    assert split(words) == (ours.split()[1:], command.split())


def test_modules_may_be_given_together_or_one_by_one() -> None:
    options = arguments.parse(["up", "--module", "x.ko", "y.ko", "--cold", "--module", "z.ko"])
    assert options.module == [Path("x.ko"), Path("y.ko"), Path("z.ko")]


@pytest.mark.parametrize(
    ("text", "guest", "path"),
    [
        ("a:/tmp/x", "a", "/tmp/x"),
        ("b2:x", "b2", "/root/x"),
        ("a:", "a", "/root/./"),
        ("a:x:y", "a", "/root/x:y"),
        ("./a:x", "", "./a:x"),
        ("dir/a:x", "", "dir/a:x"),
        ("2:x", "", "2:x"),
        ("plain", "", "plain"),
        ("/abs", "", "/abs"),
    ],
)
def test_places(text: str, guest: str, path: str) -> None:
    assert Place.parse(text) == Place(guest, path)


def test_places_that_say_they_are_folders() -> None:
    for text in ("a:/tmp/", "a:", ".", "..", "x/.", "a:.."):
        assert Place.parse(text).wants_folder, text
    for text in ("a:/tmp", "x", "a:x.", "...x"):
        assert not Place.parse(text).wants_folder, text
    assert str(Place.parse("a:/tmp/").inside("x")) == "a:/tmp/x"
    assert str(Place.parse("/").inside("x")) == "/x"


def test_host_tree(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    (tmp_path / "b" / "c" / "file").touch()
    (tmp_path / "a").touch()
    (tmp_path / "up").symlink_to("..")
    os.mkfifo(tmp_path / "b" / "fifo")
    found = copy.host_tree(str(tmp_path))
    assert found.folders == ["b", "b/c"]
    assert found.files == ["a", "b/c/file"]
    assert found.others == ["up", "b/fifo"]


class _LyingAgent(Agent):
    """Answers `find` with whatever a hostile guest likes to say."""

    def __init__(self, names: bytes) -> None:
        self.guest = "a"
        self._names = names

    def run(self, *_: object, **__: object) -> Completed:
        return Completed(0, self._names, b"", None, 0.0)


@pytest.mark.parametrize(
    "name", [b"./../x", b"/etc/passwd", b"./a//b", b"./a/../../x", b"x", b".", b"./", b"./."]
)
def test_names_that_lead_out_of_the_folder(name: bytes) -> None:
    with pytest.raises(LabError, match=r"guest a: its file name .* is not to be trusted"):
        copy.guest_tree(_LyingAgent(b"./fine\0" + name + b"\0"), "/top")


def test_names_of_any_bytes() -> None:
    found = copy.guest_tree(_LyingAgent(b"./a\nb\0./\xff/..c\0"), "/top")
    assert found.files == ["a\nb", "\udcff/..c"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min"), (7200, "2 h"), (200000, "2 d")]
)
def test_durations(seconds: float, text: str) -> None:
    assert ps.duration(seconds) == text


@pytest.mark.parametrize(
    ("line", "remarks"),
    [
        ("a/1 working cable in link up", ()),
        ("a/1 working cable in link down", ()),
        ("b/2 working cable out link down", ("b/2", "cable is out", "bluebridge link b/2 up")),
        ("a/1 failed cable in link down", ("a/1", "HCA has failed", "reset")),
        (
            "a/1 failed cable out link down addresses of others: 3 messages dropped",
            ("has failed", "cable is out", "addresses of others: 3 messages dropped"),
        ),
    ],
)
def test_ps_says_what_is_wrong_with_a_port(line: str, remarks: tuple[str, ...]) -> None:
    said = ps.remark_of(line)
    assert bool(said) == bool(remarks)
    assert all(remark in said for remark in remarks)


# Messages and the control socket.


def test_messages_arrive_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        reader = control.Reader(theirs)
        ours.sendall(b'{"progress": "on')
        assert list(reader.read()) == []
        ours.sendall(b'e"}\n{"done": {}}\n')
        assert list(reader.read()) == [{"progress": "one"}, {"done": {}}]
        for nonsense in (b"nonsense\n", b"[" * 5000 + b"\n"):
            ours.sendall(nonsense)
            with pytest.raises(LabError, match="no message"):
                list(reader.read())
        ours.shutdown(socket.SHUT_WR)
        assert list(reader.messages()) == [] and reader.over


def test_an_error_travels() -> None:
    error = LabError("what", "mend", "long story")
    error.status, error.aloud = 3, True
    arrived = control.as_error(control.error_fields(error))
    assert (str(arrived), arrived.transcript) == ("what; mend", "long story")
    assert (arrived.status, arrived.aloud) == (3, True)


def test_control(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    def handle(request: dict[str, object], progress: object) -> dict[str, object]:
        assert callable(progress)
        progress(f"doing {request['restart']}")
        if request["restart"] == "b":
            raise LabError("it did not work", "try again")
        return {"seconds": 2.5}

    control = Control(path, handle)
    heard: list[str] = []
    failures: list[LabError] = []

    def use() -> None:
        assert ask(path, {"restart": "a"}, heard.append) == {"seconds": 2.5}
        try:
            ask(path, {"restart": "b"}, heard.append)
        except LabError as error:
            failures.append(error)

    user = threading.Thread(target=use)
    user.start()
    while user.is_alive():
        control.serve()
    control.close()
    assert heard == ["doing a", "doing b"]
    assert [str(error) for error in failures] == ["it did not work; try again"]
    with pytest.raises(LabError, match="the keeper does not listen"):
        ask(path, {"restart": "a"}, heard.append)


def test_clients_that_say_nothing_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the keeper, which must tell the end of a process at once, nor other clients."""
    later = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + later)
    monkeypatch.setattr(control, "time", clock)
    path = tmp_path / "control.sock"
    served = Control(path, lambda _request, _progress: {"seconds": 1.5})
    watch = keeper.EndWatch([], None)
    watch.add(served.fileno())
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(40)]
        for each in silent:
            each.connect(str(path))
        silent[-1].close()
        silent[-2].send(b'{"restart"')
        answers: list[object] = []
        user = threading.Thread(target=lambda: answers.append(ask(path, {"restart": "a"}, print)))
        took: list[float] = []

        def turn() -> None:
            watch.wait(0.1)
            begin = time.monotonic()
            served.serve()
            took.append(time.monotonic() - begin)

        user.start()
        while user.is_alive():
            turn()
        turn()
        later = control._PATIENCE + 1
        turn()
        assert answers == [{"seconds": 1.5}]
        assert max(took) < control._PATIENCE / 2
        for each in silent[:-1]:
            each.settimeout(0)
            assert each.recv(1) == b"", "who is silent is hung up on"
    watch.close()
    served.close()


# Logs of long runs.


def test_logs_in_use_are_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(12):
        (tmp_path / "bluebridge" / f"run-2000{number:04}").mkdir(parents=True)
    kept = folders.keep_logs(tmp_path / "bluebridge" / "run-20000000")
    fresh = folders.log_folder(None)
    left = sorted(path.name for path in (tmp_path / "bluebridge").iterdir())
    assert left[0] == "run-20000000"
    assert left[-1] == fresh.name
    assert len(left) == 11
    os.close(kept)


def test_a_log_folder_has_one_writer(tmp_path: Path) -> None:
    kept = folders.keep_logs(tmp_path)
    with pytest.raises(LabError, match=r"another run writes to the log folder .*; choose another"):
        folders.keep_logs(tmp_path)
    os.close(kept)
    os.close(folders.keep_logs(tmp_path))


def test_nothing_fills_up_a_disk_that_is_full(tmp_path: Path) -> None:
    # A limit on the size of files fails the write where a full disk does: in the middle.
    code = (
        "import pathlib; from bluebridge.host_tools.lab import folders;"
        " folders.log_folder(pathlib.Path('x'))"
    )
    limited = f'ulimit -f 100; trap "" XFSZ; exec {sys.executable} -c "{code}"'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, check=False
    )
    assert b"cannot write the log folder" in done.stderr
    assert not list((tmp_path / "x").iterdir())


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_the_caller_closed(closed: str, tmp_path: Path) -> None:
    """No file that we open gets their number, and nothing fails for want of them."""
    code = "from os import *; from bluebridge.host_tools.cli import main; main(['ps']); "
    code += "write(3, b'%d' % open('.', 0))"
    script = f'exec 3>told; {sys.executable} -c "{code}" {closed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, int((tmp_path / "told").read_text()) > 3) == (0, True)


def test_every_pair_has_addresses_of_its_own() -> None:
    configs = [LabConfig(number=number) for number in range(1, 100)]
    first, second = (configs[0].hca_mac(index).hex(":") for index in (0, 1))
    assert (first, second) == ("00:02:c9:bb:00:01", "00:02:c9:bb:00:02")
    seen: set[object] = set()
    for mac in (config.hca_mac(index) for config in configs for index in (0, 1)):
        hca = HcaConfig("x", mac, features=Features(ports=2))
        assert mac.startswith(bytes((0, 2, 0xC9)))
        seen |= {
            hca.node_guid,
            *(hca.port_guid(n) for n in (1, 2)),
            *(hca.mac_of(n) for n in (1, 2)),
        }
    assert len(seen) == 5 * 2 * len(configs)
