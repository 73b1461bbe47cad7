"""A hundred wrong command lines: each gives one line with the mend and a status; nothing begins."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from bluebridge.host_tools import cli
from tests.models.analysis_log import Sender

USAGE, FAILED, RUN_FAILED = 2, 1, 125
"""Statuses: of a wrong command line, of what cannot be done, of `run` that reached no command."""
SERVER = "server,addr=192.168.69.127,port=9999"
CLIENT = "client,addr=192.168.69.127,port=9999,count=3"
ANYWHERE = "server,addr=0.0.0.0,port=9999"

BAD = [
    ("", USAGE, "COMMAND is missing"),
    ("frob", USAGE, "choose from up, run"),
    ("--bogus", USAGE, "no option --bogus"),
    ("up --bogus", USAGE, "no option --bogus"),
    ("up --drivr kernel", USAGE, "did you mean --driver?"),
    ("up word", USAGE, "one word too many"),
    ("up --pairs", USAGE, "expected one argument"),
    ("up --pairs x", USAGE, "'x' is not a whole number"),
    ("up --pairs 0", USAGE, "give 1 or more"),
    ("up --pairs 1000", USAGE, "give --pairs"),
    ("up --guests 1", USAGE, "choose from 2, 3, 4"),
    ("up --guests 3 --ntb", USAGE, "leave out --guests, or --ntb"),
    ("up --guests 4 --rtrs kernel", USAGE, "leave out --guests, or --rtrs"),
    ("up --wire package", USAGE, "or HOST:PORT of another lab"),
    ("up --wire h:1 --underlay h", USAGE, "write ADDRESS:PORT"),
    ("up --wire h:1 --pairs 2", USAGE, "use --guests in place of --pairs"),
    ("up --wire h:1 --vni 0", USAGE, "from 1 to 16777215"),
    ("up --vni 7", USAGE, "add --wire HOST:PORT"),
    ("up --ack-timeout-factor 5 --wire packets", USAGE, "5 is no factor from 1 to 4"),
    ("up --ack-timeout-factor 2", USAGE, "add --wire packets"),
    ("up --host", USAGE, "expected one argument"),
    ("up --host x", USAGE, "write the names of sides, such as b or a,b"),
    ("up --host c", USAGE, "there is no side c; name a to b, or add --guests"),
    ("up --host b2", USAGE, "the next pair is a and b; write --host b"),
    ("up --host b --bare", USAGE, "leave out --bare, or --host"),
    ("up --card connectx4", USAGE, "'connectx4' is none of connectx3, connectx5"),
    ("up --card connectx5,connectx3,connectx3", USAGE, "3 cards for 2 guests; name fewer"),
    ("up --card connectx5 --pro", USAGE, "has RoCE v2 without that; leave it out"),
    ("up --card connectx5 --blueflame-size 1024", USAGE, "BlueFlame registers of 512 bytes"),
    ("up --card connectx5 --ports 2", USAGE, "a ConnectX-5 has one port; leave it out"),
    ("up --card connectx5 --wire ethernet", USAGE, "'ethernet': write messages, packets, or HOST"),
    ("up --card connectx5 --wire 10.0.0.1:0", USAGE, "write messages, packets, or HOST:PORT"),
    ("up --card connectx3,connectx5 --ports 2", USAGE, "a ConnectX-5 has one port; leave it out"),
    ("up --card connectx5 --driver kernel --link infiniband", USAGE, "speaks Ethernet; leave it"),
    (
        "up --card connectx5,connectx3 --rtrs kernel",
        USAGE,
        "a ConnectX-3 has with --pro only; add --pro",
    ),
    ("up --card connectx5,connectx3,connectx5 --guests 3 --rxe c", USAGE, "does not; add --pro"),
    ("up --card connectx5 --rxe b --wire messages", USAGE, "--rxe and --wire messages exclude"),
    ("rtrs demo --card connectx5", USAGE, "a ConnectX-5 has one; add --hcas 2"),
    ("rtrs demo --card connectx3,connectx5 --hcas 2", USAGE, "--pro only; add --pro"),
    ("rtrs demo --card connectx5 --provider ntrdma", USAGE, "--card is about paths over HCAs"),
    ("up --host b --rxe b --pro", USAGE, "leave out --rxe, or --host"),
    ("up --host b --link infiniband --driver kernel", USAGE, "leave out --link, or --host"),
    ("up --host b --ntb intel-gen4 --window-alias", USAGE, "leave out --host"),
    ("up --host a,b --driver kernel", USAGE, "--driver is about guests, and there is none"),
    ("up --host a,b --rtrs python", USAGE, "leave out --rtrs"),
    ("python", USAGE, "GUEST is missing"),
    ("python b", FAILED, "no guest runs; `bluebridge up`"),
    ("up --cpus 0", USAGE, "give --cpus 1 to 64"),
    ("up --memory 16", USAGE, "give --memory 256 to"),
    ("up --memory 99999999", USAGE, "give --memory 256 to"),
    ("up --ntb plx", USAGE, "choose from intel-gen4"),
    ("up --hcas 3", USAGE, "choose from 1, 2"),
    ("up --driver windows", USAGE, "choose from guest, kernel, none"),
    ("up --bare --ntb", USAGE, "leave out --bare"),
    ("up --bare --hca", USAGE, "not allowed with"),
    ("up --bare --link infiniband", USAGE, "bare guests have no hardware; leave out --bare"),
    ("up --bare --driver kernel", USAGE, "bare guests have no hardware; leave out --bare"),
    ("up --driver kernel --link infiniband --sm none", USAGE, "down until opensm runs"),
    ("up --driver kernel --sm none", USAGE, "--sm is about InfiniBand; add --link"),
    ("up --capture=-5", USAGE, "is no number of bytes, 0 or more"),
    ("up --capture=x", USAGE, "is no number of bytes, 0 or more"),
    ("up --capture=16777217", USAGE, "is more than a log keeps, 16777216 bytes"),
    ("up --sm none", USAGE, "add --link infiniband"),
    ("up --link infiniband", USAGE, "add --driver kernel"),
    ("up --link token-ring", USAGE, "choose from"),
    ("up --window-alias", USAGE, "add --ntb"),
    ("up --ntb switchtec --window-alias", USAGE, "intel-gen4"),
    ("up --ntb --window-alias --cold", USAGE, "leave out --cold"),
    ("up --rtrs kernel --driver kernel", USAGE, "leave out --driver"),
    ("up --rtrs python:kernel --ntb", USAGE, "leave out --ntb"),
    ("up --rtrs kernel --link infiniband", USAGE, "leave out --link"),
    ("up --bare --rtrs kernel", USAGE, "leave out --bare, or --rtrs"),
    ("up --bare --hcas 2", USAGE, "leave out --bare, or --hcas"),
    ("up --bar-sizes ntrdma", USAGE, "add --ntb"),
    ("up --rtrs frob", USAGE, "write kernel, python"),
    ("up --module nothing.ko", USAGE, "kmod"),
    ("up --log-limit x", USAGE, "--help"),
    ("up --stop-on ''", USAGE, "the condition is empty"),
    ("up --stop-on kind=", USAGE, "a value is missing"),
    ("run", USAGE, "GUEST is missing"),
    ("run --bogus a -- true", USAGE, "no option --bogus"),
    ("run a", USAGE, "bluebridge run GUEST -- COMMAND"),
    ("run a -- true", RUN_FAILED, "bluebridge up"),
    ("run -t a -- top", USAGE, "leave out -t"),
    ("run --timeout x a -- true", USAGE, "no number of seconds"),
    ("run --timeout 0 a ls", USAGE, "no number of seconds"),
    ("run --timeout nan a ls", USAGE, "no number of seconds"),
    ("cp", USAGE, "FILE is missing"),
    ("cp one", USAGE, "name a source and a target"),
    ("cp one two", USAGE, "write NAME:PATH"),
    ("cp one z:two", FAILED, "bluebridge up"),
    ("console", USAGE, "GUEST is missing"),
    ("console a", USAGE, "needs a terminal"),
    ("ps a", USAGE, "one word too many"),
    ("restart z", FAILED, "bluebridge up"),
    ("boot z", USAGE, "--pxe is missing"),
    ("boot z --pxe", FAILED, "bluebridge up"),
    ("link a", USAGE, "ACTION is missing"),
    ("link a sideways", USAGE, "choose from up, down"),
    ("link z down", FAILED, "bluebridge up"),
    ("fault z", FAILED, "bluebridge up"),
    ("atlas --only frob", USAGE, "fault list"),
    ("atlas --programs frob", USAGE, "choose from ibv_rc_pingpong"),
    ("atlas --times 0", USAGE, "give 1 to"),
    ("atlas --only ntb-*", USAGE, "fault list"),
    ("atlas --pairs 0", USAGE, "give 1 to"),
    ("show a", USAGE, "KIND is missing"),
    ("show a frob", USAGE, "choose from qp"),
    ("show a qp x", USAGE, "such as 73"),
    ("show a ntb 1", USAGE, "leave it out"),
    ("show a/2 qp", USAGE, "show a ports"),
    ("show z qp", FAILED, "bluebridge up"),
    ("down 7", FAILED, "bluebridge up"),
    ("down x", FAILED, "bluebridge up"),
    ("krping", USAGE, "server, client are missing"),
    ("krping server client", USAGE, "port=N is missing"),
    (f"krping {SERVER} {CLIENT},frob", USAGE, "unknown option frob"),
    (f"krping {SERVER} {CLIENT} --x", USAGE, "no option --x"),
    (f"krping {SERVER} {CLIENT} --card connectx5,connectx3", USAGE, "--pro only; add --pro"),
    (f"krping {SERVER} {CLIENT} --provider tcp", USAGE, "choose from"),
    (f"krping {SERVER} {CLIENT} --host c", USAGE, "there is no side c; name a or b"),
    (f"krping {SERVER} {CLIENT} --host ab", USAGE, "write the letters of guests, such as b or b,c"),
    (
        f"krping {SERVER} {CLIENT} --host a --provider ntrdma --backend tcp",
        USAGE,
        "leave out --host",
    ),
    (f"krping server {CLIENT}", USAGE, "port=N is missing"),
    (f"krping {CLIENT} {SERVER}", USAGE, "first krping string must contain `server`"),
    (f"krping {SERVER} {SERVER}", USAGE, "second krping string must contain `client`"),
    (f"krping {SERVER} {CLIENT.replace('127', '5')}", USAGE, "192.168.69.5 is unreachable"),
    (f"krping {SERVER} {CLIENT.replace('9999', '9998')}", USAGE, "the client asks for 9998"),
    (f"krping {SERVER} {CLIENT},size=65", USAGE, "differ in size=65"),
    (f"krping {SERVER} {CLIENT},mem_mode=reg", USAGE, "differ in mem_mode=reg"),
    (f"krping {ANYWHERE} {CLIENT.replace('127', '255')}", USAGE, "address of a host"),
    (f"krping server,addr=10.0.0.300,port=9 {CLIENT}", USAGE, "no IPv4 address"),
    ("log", USAGE, "bluebridge up"),
    ("log nowhere", USAGE, "nowhere"),
    ("log LOG --view pictures", USAGE, "choose from events"),
    ("log LOG --kind mmmio", USAGE, "choose from mmio"),
    ("log LOG --device q", USAGE, "it has a, b"),
    ("log LOG --limit -1", USAGE, "below 0"),
    ("log LOG --limit many", USAGE, "whole number"),
    ("log LOG --profile nosuch", USAGE, "nosuch"),
    ("log LOG --from x", USAGE, "'x' is not a number"),
    ("log LOG --from 5 --to 1", USAGE, "--to is before --from"),
    ("log LOG --json --perfetto t.pftrace", USAGE, "drop one"),
    ("log LOG --view ntrdma", USAGE, "--view wr"),
    ("model", USAGE, "name the folder"),
    ("model nowhere", USAGE, "nowhere"),
    ("model LOG --profile nosuch", USAGE, "nosuch"),
    ("up --stop-on device=/a.*", USAGE, "--stop-on"),
    ("watch", FAILED, "bluebridge up"),
    ("watch --interval 0", USAGE, "above 0"),
    ("watch nowhere", USAGE, "name the folder"),
    ("kmod", USAGE, "DIR is missing"),
    ("kmod nowhere", USAGE, "nowhere"),
    ("doctor now", USAGE, "one word too many"),
    ("completion fish", USAGE, "choose from bash, zsh"),
    ("ntrdma frob", USAGE, "choose from demo"),
    ("ntrdma perf frob", USAGE, "one of"),
    ("ntrdma perf ud_lat", USAGE, "no such test: ud_lat"),
    ("ntrdma perf --count 0", USAGE, "is less than 1"),
    ("ntrdma perf --size 0", USAGE, "is less than 1"),
    ("ntrdma perf --host b --backend tcp", USAGE, "no network joins a host and a guest"),
    ("ntrdma perf --host c", USAGE, "--host: there is no side c; name a or b"),
    ("ntrdma perf --backend tcp --window registered", USAGE, "over TCP"),
    ("ntrdma perf --model intel-gen1 --window registered", USAGE, "multiples of their size"),
    ("rtrs demo --sides kernel --provider ntrdma", USAGE, "use --sides python"),
    ("rtrs demo --host a,b", USAGE, "mapped by the kernel of a guest a; --host b"),
    ("rtrs demo --host b --sides kernel", USAGE, "--sides CLIENT:python"),
    ("rtrs demo --host c", USAGE, "--host: there is no side c"),
    ("rtrs demo --hcas 2 --provider ntrdma", USAGE, "leave it out"),
    ("ntrdma perf --size 22x", USAGE, "'22x' is not a whole number"),
    ("web --port 22x", USAGE, "'22x' is not a TCP port"),
    ("web --event 22x", USAGE, "'22x' is not a whole number"),
    ("log .", USAGE, "no bus log"),
    ("sweep --bogus", USAGE, "no option --bogus"),
    ("sweep --min 0", USAGE, "no payload from 0 to 1024"),
    ("sweep --min 9 --max 8", USAGE, "from 9 to 8 bytes; give 1 <= --min <= --max"),
    ("sweep --max 70000", USAGE, "no payload"),
    ("sweep --step 0", USAGE, "--step 0 leads nowhere"),
    ("sweep --iterations 4", USAGE, "give 5 to 5000"),
    ("sweep --inline 913", USAGE, "give 0 to 912"),
    ("sweep --blueflame on,on", USAGE, "at most once"),
    ("sweep --blueflame perhaps", USAGE, "give each of on, off at"),
    ("sweep --blueflame wrong-page", USAGE, "give each of on, off at"),
    ("sweep --profile x --profile x", USAGE, "given twice"),
]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where nothing runs and nothing can be built, and one bus log."""
    monkeypatch.setenv("BLUEBRIDGE_CACHE", "/dev/null/cache")
    # Short names: the paths of sockets are limited.
    for name, short in (("XDG_RUNTIME_DIR", "run"), ("XDG_STATE_HOME", "state")):
        folder = tmp_path / short
        folder.mkdir(mode=0o700)
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(tmp_path)
    sender = Sender(tmp_path / "log")
    sender.post(64, by="doorbell")
    sender.log.close()
    return tmp_path / "log"


def _status(words: list[str]) -> int:
    try:
        return cli.main(words)
    except SystemExit as end:
        return int(str(end.code))


@pytest.mark.parametrize(
    ("line", "status", "mend"), BAD, ids=[line or "nothing" for line, *_ in BAD]
)
def test_one_line_with_the_mend(
    line: str, status: int, mend: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(log) if word == "LOG" else word for word in shlex.split(line)]
    before = set(os.listdir("."))
    assert _status(words) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("bluebridge")
    assert mend in said.err
    assert set(os.listdir(".")) == before
