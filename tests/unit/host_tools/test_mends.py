"""Errors of `link`, `fault`, `weather`, `mark`, `run` and their like: each says what there is."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.server.control import ControlCommands
from bluebridge.host_tools import cli
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.keeper.record import RUNNING, GuestRecord, PairRecord
from bluebridge.host_tools.keeper.registry import Entry
from tests.models.house import HOME, tree
from tests.models.rdma_node import Pair

MEND = re.compile(
    r"`[^`]*bluebridge[^`]+`|choose from|write|[Ss]ay|give|leave|these run: |"
    r"start the (?:pair|server)|there are |its pair has|, but |takes |has scratchpads|"
    r"{why}|has vectors|at most|ask for all|drop one|name |use it with|make it first|copy it|"
    r"in place of"
)
"""Matches what mends an error: a command that lists what there is, or the list itself."""
ORDERS = (
    "device/server/control.py", "device/server/named_faults.py", "device/server/show_control.py",
    "device/fabric/faults/parse.py", "device/fabric/faults/stage.py",
    "device/fabric/faults/roce_packets.py",
)  # fmt: skip
"""Modules whose `ValueError` a user of the control socket or of a command sees as it is."""


def raised(path: Path, names: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """The line and the texts of each exception of these names that is raised."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            call = node.exc
            if isinstance(call.func, ast.Name) and call.func.id in names:
                yield node.lineno, [ast.unparse(each) for each in call.args]


@pytest.mark.parametrize("name", ORDERS)
def test_every_refusal_of_the_server_has_its_mend(name: str) -> None:
    found = list(raised(HOME / name, ("ValueError",)))
    assert found
    assert [(line, text) for line, (text, *_) in found if not MEND.search(text)] == []


def test_every_wrong_use_of_a_command_has_its_mend() -> None:
    found = [
        (path.name, line, texts)
        for path in (HOME / "host_tools/commands").glob("*.py")
        for line, texts in raised(path, ("UsageError",))
    ]
    assert len(found) > 30
    assert [each for each in found if len(each[2]) < 2 or each[2][1] in ("''", '""')] == []


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pair:
    """A pair of guests, a and b, that runs; its server is here."""
    pair = Pair().connect()
    rules = FaultRules(pair.a.host.call_later, EventLog())
    for name, node in (("a", pair.a), ("b", pair.b)):
        rules.add_link(f"{name}/1", name, node.port, pair.fabric)
    commands = ControlCommands({"a": pair.a.hca, "b": pair.b.hca}, rules)
    record = PairRecord(1, [GuestRecord(name) for name in "ab"], state=RUNNING, folder="/none")

    def tell(_: Guest, line: str) -> list[str]:
        *lines, last = commands.execute(line)
        if last != "ok":
            raise UsageError(last.removeprefix("error: "))
        return lines

    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(registry, "pairs", lambda: iter([(Entry(1, tmp_path), record)]))
    monkeypatch.setattr(Guest, "trouble", lambda _: None)
    monkeypatch.setattr(Guest, "tell", tell)
    return pair


THESE = "there is no guest z; these run: a, b"
RULES = "`bluebridge link GUEST rules` lists them"


@pytest.mark.parametrize(
    ("line", "mend"),
    [
        ("link z down", THESE),
        ("link z.1/2 drop", THESE),
        ("fault z", THESE),
        ("fault z.1 hung-wr", THESE),
        ("weather z --drop 1%", THESE),
        ("weather z-a --drop 1%", THESE),
        ("weather a-z --drop 1%", "no guest 'z' at the other end of a; its pair has a, b"),
        ("weather a- --drop 1%", "no guest '' at the other end of a; its pair has a, b"),
        ("mark z hello there", THESE),
        ("run z -- true", THESE),
        ("cp z:one .", THESE),
        ("restart z", THESE),
        ("boot z --pxe", THESE),
        ("python z", THESE),
        ("python a x.py", "`bluebridge run a -- python3 ...` runs programs there"),
        ("down z", THESE),
        ("show z qp", THESE),
        ("link a.1 down", "there is no HCA 'a.1', but a, b"),
        ("link a/3 down", "'a' has no port '3', but 1 to 1"),
        ("link a down --port 0", "'a' has no port '0', but 1 to 1"),
        ("link a drop --opcode FOO", "opcode=FOO: choose from ACK, ATOMIC_ACK, "),
        ("link a drop --kind foo", "choose from datagram, frames, packet, request"),
        ("link a drop --cm FOO", "choose from"),
        ("link a drop --length 9-1", "write the least first"),
        ("link a drop --probability 2", "write 0 to 1"),
        ("link a drop --payload xy", "write bytes in hexadecimal"),
        ("link a delay", "delay without a value: write 0 to 600000 milliseconds"),
        ("link a rewrite ipv4.frob=1", "ipv4: choose from version"),
        ("link a rewrite frob.x=1", "with one of"),
        ("link a release", "release: which rule?; `bluebridge link a rules` lists them"),
        ("link a release 7", RULES),
        ("link a remove 7", RULES),
        ("link a remove x", "remove x: which rule?; `bluebridge link a rules` lists them"),
        ("weather a --drop smoke=1", "write NAME=VALUE, with a name of direction"),
        ("weather a --drop opcode=FOO", "opcode=FOO: choose from ACK"),
        ("fault a frob", "`bluebridge fault list` shows all"),
        ("fault a command-fails", "needs opcode and status: `bluebridge fault list` has all"),
        ("fault a command-fails --opcode FOO --status BAD_OP", "opcode=FOO: choose from "),
        ("fault a command-fails --opcode NOP --status FOO", "status=FOO: choose from "),
        ("fault a command-fails --opcode NOP --status OK", "choose from INTERNAL_ERR"),
        ("fault a command-wrong --opcode QUERY_PORT --field link_upp --value 0", "link_up, "),
        ("fault a command-wrong --opcode NOP --field x --value 0", "choose from QUERY_DEV_CAP"),
        ("fault a hung-wr --qpn 7", "`bluebridge show GUEST qp` lists them"),
        ("fault a hung-wr --opcode FOO", "opcode=FOO: choose from SEND, "),
        ("fault a cq-overrun --cqn 7", "`bluebridge show GUEST cq` lists them"),
        ("fault a key-locked --key 7", "`bluebridge show GUEST mr`"),
        ("fault a gid-vanishes --index 99", "`bluebridge show GUEST ports` lists them"),
        ("fault a eqe-lost --event FOO", "event=FOO: choose from COMP"),
        ("fault a interrupt-lost --vector 9999", "the adapter has vectors 0 to"),
        ("fault a ntb-doorbell-lost", "start the pair with `bluebridge up --ntb`"),
        ("fault a hung-wr --ms 5", "hung-wr takes qpn, qp-type, next-connection"),
        ("fault a clear 9", "`bluebridge fault a armed` lists them"),
    ],
)  # fmt: skip
def test_a_wrong_order_is_one_line_with_what_there_is(
    lab: Pair, line: str, mend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = cli.main(shlex.split(line))
    except SystemExit as end:
        status = int(str(end.code))
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert mend in said.err and said.err.count("\n") == 1
    assert "bluebridge ps" not in said.err


def test_names_of_verbs_are_taken_by_links_too(lab: Pair) -> None:
    assert cli.main(["link", "a", "drop", "--opcode", "IBV_WR_RDMA_WRITE,SEND_WITH_INV"]) == 0
    assert cli.main(["link", "a", "drop", "--opcode", "WRITE,SEND_INV"]) == 0
