"""The command line and the checks that come before anything boots."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bluebridge
from bluebridge.guest.protocols.krping.option_string import next_address
from bluebridge.host_tools import arguments, cli
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.krping import last_iteration
from bluebridge.host_tools.krping.krping_command import KrpingRequest, Side
from bluebridge.host_tools.machine.qemu_arguments import (
    Emulator,
    GuestSize,
    command_line,
    device_arguments,
)
from bluebridge.images import doctor
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME

SERVER = "server,addr=192.168.69.127,port=9999"
CLIENT = "client,addr=192.168.69.127,port=9999,count=3,validate"


def test_request() -> None:
    request = KrpingRequest.parse(SERVER, CLIENT)
    assert (request.server_ip, request.client_ip) == ("192.168.69.127", "192.168.69.128")
    assert request.count == 3
    assert "--ip 192.168.69.128" in request.command(server=False)
    assert CLIENT in request.command(server=False)


def test_a_server_on_every_address_gets_the_one_the_client_asks_for() -> None:
    request = KrpingRequest.parse("server,addr=0.0.0.0,port=9999", CLIENT)
    assert request.server_ip == "192.168.69.127"


def test_next_free_address_wraps() -> None:
    assert next_address("10.1.2.1") == "10.1.2.2"
    assert next_address("10.1.2.254") == "10.1.2.1"


def test_special_addresses_are_refused() -> None:
    for wrong in ("224.0.0.1", "127.0.0.1", "10.0.0.0", "0.1.2.3", "255.255.255.255"):
        with pytest.raises(UsageError):
            last_iteration.server_address("0.0.0.0", wrong)


def test_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Each group has a title, each command a line; its own help begins with the same words."""
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    titles = [line.partition(":")[0] for line in arguments.GROUPS]
    assert titles == ["lab", "look", "break", "measure", "build"]
    assert [listed.index(f"\n{title}\n") for title in arguments.GROUPS] == sorted(
        listed.index(f"\n{title}\n") for title in arguments.GROUPS
    )
    for name, command in arguments.COMMANDS.items():
        assert f"\n  {name:12}{command.help}\n" in listed
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        usage, _, description = capsys.readouterr().out.partition("\n\n")
        assert usage.startswith(f"usage: bluebridge {name}")
        assert description[0].isupper(), name
        assert callable(import_module(command.run).main)


@pytest.mark.parametrize("words", [["ps"], ["--help"], ["--version"]])
def test_short_commands_import_little(words: list[str], tmp_path: Path) -> None:
    """Modules that take long to import are for the commands that need them."""
    code = (
        "import sys\n"
        "from bluebridge.host_tools import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=HOME,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {name for name in done.stderr.split() if name.startswith("bluebridge.")}
    heavy = {"subprocess", "asyncio", "rich", "pexpect", "cffi", "uuid"}
    assert not heavy & set(done.stderr.split())
    light = ["cache_root", "compiled", "device", "device.cards", "hot_modules", "printable"]
    ground = {f"bluebridge.{name}" for name in light}
    assert not {name for name in ours - ground if not name.startswith("bluebridge.host_tools")}
    assert len(ours) <= 18


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"bluebridge {bluebridge.__version__}\n"


def test_side_reads_the_last_line() -> None:
    counts = {"send_bytes": 48, "send_msgs": 3, "recv_bytes": 16, "recv_msgs": 1}
    stats = {"name": "1-mlx4_0", **counts}
    counts = {"iterations": 3, "validated": 3}
    result = {"ok": True, "stats": stats, **counts, "us_per_iteration": None}
    side = Side.read("guest a", 0, "[ 1.0] log line\n" + json.dumps(result))
    assert side.line == "1-mlx4_0 48 3 16 1 0 0 0 0"
    assert side.output == "[ 1.0] log line"
    for wrong in ({"stats": 7}, {"validated": "3"}, {"us_per_iteration": [1]}, {"iterations": "3"}):
        with pytest.raises(LabError, match="guest a: krping printed no result that makes sense"):
            Side.read("guest a", 0, json.dumps(result | wrong))


def test_side_that_never_ran() -> None:
    text = json.dumps({"ok": False, "stats": {}, "error": "cannot open the HCA: no such device"})
    with pytest.raises(LabError, match="guest a: krping: cannot open the HCA"):
        Side.read("guest a", 1, text)


@pytest.mark.parametrize("text", ["", "Traceback\nValueError: 3", "{}", "[]"])
def test_side_without_a_result(text: str) -> None:
    with pytest.raises(LabError, match="guest b: krping ended with status 9"):
        Side.read("guest b", 9, text)


def test_qemu_arguments() -> None:
    emulator = Emulator(("qemu",), {}, "tcg")
    argv = GuestSize().arguments("a", emulator, Path("/run"), Path("/log,s/console-a.log"))
    ports = [word for word in argv if word.startswith("pcie-root-port,")]
    assert len(ports) >= 5
    # 16 MiB of UAR pages fit behind each, a window of several GiB behind one of them.
    assert sum("pref64-reserve=64M" in word for word in ports) == len(ports) - 1
    assert sum("pref64-reserve=16G" in word for word in ports) == 1
    assert any("logfile=/log,,s/console-a.log" in word for word in argv)
    assert {"-nodefaults", "-no-reboot", "-S"} <= set(argv)
    assert argv[argv.index("-cpu") + 1] == "max,-erms,-fsrm"


def test_a_device_on_the_command_line() -> None:
    _, words = device_arguments(3, Path("/run/x,y.sock"))
    device = json.loads(words)
    assert device["socket"] == {"path": "/run/x,y.sock", "type": "unix"}
    assert device["bus"] == "port3"


def test_kernel_command_line() -> None:
    words = command_line("a", GuestSize(hugepages=7), vfio=True).split()
    assert {"bluebridge.host=a", "bluebridge.vfio=1", "hugepages=7"} <= set(words)


def test_doctor_names_a_cure_for_whatever_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    missing = [line for line in lines if line.startswith("MISSING")]
    assert any(line.startswith("ok      processor") for line in lines)
    assert len([line for line in lines if "mend: " in line]) == len(missing)
    assert status == (1 if missing else 0)


def test_doctor_misses_nothing_that_a_setup_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as DPDK, which is fetched when it is first asked for."""
    made: dict[str, Path] = {}
    monkeypatch.setattr(Artefacts, "folder", lambda _, name: made.setdefault(name, tmp_path / name))
    monkeypatch.setattr(Artefacts, "present", lambda _, name: made.get(name))
    monkeypatch.setattr(doctor, "accelerator", lambda _: "tcg")  # would start a QEMU
    artefacts = Artefacts(tmp_path)
    before = [check.name for check in doctor.checks(artefacts) if check.mend == "make setup"]
    artefacts.build()
    assert {"kernel", "guest"} <= set(before)
    assert not [check for check in doctor.checks(artefacts) if check.mend == "make setup"]


@pytest.mark.full
def test_doctor_as_json_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert status == (0 if told["ok"] else 1)
    names = [check["name"] for check in told["checks"]]
    assert {"processor", "memory", "qemu", "sandbox"} <= set(names)
    assert all(bool(check["mend"]) != check["ok"] for check in told["checks"])
