"""Tests of what a device server that is ready can no longer do, and what it still does."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest

from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.vfio_user.client import Client
from tests.models.server import ServerProcess
from tests.wire.conftest import StartServer


def _arguments(folder: Path, *more: str) -> list[str]:
    words = ["--hca", f"name=a,socket={folder / 'a'}", "--control", str(folder / "control")]
    return [*words, "--log", str(folder / "log"), *more]


def _status(server: ServerProcess, name: str) -> str:
    text = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(rf"^{name}:\s*(\S+)", text, re.MULTILINE)
    assert found is not None
    return found[1]


def test_a_server_that_is_ready_is_contained(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("bluebridge.device", *_arguments(tmp_path))
    assert (_status(server, "NoNewPrivs"), _status(server, "Seccomp")) == ("1", "2")
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    assert re.search(r"^Max open files +4096 +4096 ", limits, re.MULTILINE)
    assert re.search(rf"^Max address space +{1 << 40} +{1 << 40} ", limits, re.MULTILINE)
    with Client(tmp_path / "a") as client:
        assert client.alive()


def test_files_elsewhere_are_out_of_reach(start_server: StartServer, tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    start_server("bluebridge.device", *_arguments(home))
    for folder, allowed in ((home, True), (elsewhere, False)):
        hardware.tell(home / "control", "profile start")
        if allowed:
            hardware.tell(home / "control", f"profile stop {folder / 'stacks'}")
        else:
            with pytest.raises(Exception, match="Permission denied"):
                hardware.tell(home / "control", f"profile stop {folder / 'stacks'}")
        assert (folder / "stacks").exists() == allowed


def _from_inside(server: ServerProcess) -> dict[str, str]:
    """How each attempt of `tests.wire.inside_sandbox` ended."""
    output = server.process.stdout
    assert output is not None
    server.process.send_signal(signal.SIGUSR1)
    lines = iter(output.readline, "end\n")
    return dict(line.rstrip("\n").split(": ") for line in lines)


def test_code_inside_reaches_no_socket_and_no_file(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Whoever starts the server by hand may do it in a home folder; the session bus is a socket."""
    home, lab = tmp_path / "home", tmp_path / "lab"
    home.mkdir()
    lab.mkdir()
    secret, path = home / "key", tmp_path / "bus"
    secret.write_text("secret")
    with socket.socket(socket.AF_UNIX) as bus:
        bus.bind(str(path))
        bus.listen()
        words = (str(secret), str(path))
        bare = start_server(
            "tests.wire.inside_sandbox", *words, *_arguments(lab, "--no-sandbox"), cwd=home
        )
        assert set(_from_inside(bare).values()) == {"done"}
        assert bare.terminate() == 0
        server = start_server("tests.wire.inside_sandbox", *words, *_arguments(lab), cwd=home)
        assert _from_inside(server) == {
            "read a file": "EACCES",
            "list its folder": "EACCES",
            "connect": "EPERM",
            "open a socket": "EPERM",
            "open a pair of datagram sockets": "EPERM",
        }
    for _ in range(3):  # one after the other: each is given to libvfio-user anew
        with Client(lab / "a") as client:
            assert client.alive()


def test_without_a_sandbox_all_is_as_the_user_s(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("bluebridge.device", *_arguments(tmp_path, "--no-sandbox"))
    assert (_status(server, "NoNewPrivs"), _status(server, "Seccomp")) == ("0", "0")
    with Client(tmp_path / "a") as client:
        assert client.alive()
