"""Fault rules from the control socket, from `bluebridge link` and from programs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.fault_words import ACTIONS, WORDS
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.server.control import ControlCommands
from bluebridge.host_tools.commands import link, weather
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests
from bluebridge.host_tools.keeper.guests import Guest
from bluebridge.host_tools.keeper.record import GuestRecord, PairRecord
from bluebridge.host_tools.keeper.registry import Entry
from bluebridge.host_tools.lab.hardware import Hardware
from tests.models.house import HOME
from tests.models.rdma_node import Pair, SendOpcode, remote


class Lab:
    """A connected pair and the commands of its server."""

    def __init__(self) -> None:
        self.pair = Pair().connect()
        rules = FaultRules(self.pair.a.host.call_later, EventLog())
        rules.add_link("a/1", "a", self.pair.a.port, self.pair.fabric)
        rules.add_link("b/1", "b", self.pair.b.port, self.pair.fabric)
        self.commands = ControlCommands({"a": self.pair.a.hca, "b": self.pair.b.hca}, rules)

    def tell(self, line: str) -> list[str]:
        """Return what a client of the socket gets."""
        *lines, last = self.commands.execute(line)
        if last != "ok":
            raise UsageError(last, "")
        return lines

    def write(self) -> None:
        """A posts an empty RDMA WRITE."""
        self.pair.a.post_send(self.pair.qa, SendOpcode.RDMA_WRITE, remote(0, 0))

    def written(self) -> int:
        """How many of them are complete."""
        return len(self.pair.a.completions(self.pair.qa))


@pytest.fixture
def lab() -> Lab:
    """A pair."""
    return Lab()


def test_rules_over_the_control_socket(lab: Lab) -> None:
    assert lab.commands.execute("drop a kind=request count=1") == ["1", "ok"]
    assert lab.commands.execute("hold b/1 opcode=ACK direction=out") == ["2", "ok"]
    lab.write()
    lab.pair.run(0.1)
    assert lab.tell("rules") == [
        "1 a/1 drop kind=request count=1: matched 2, taken 1, waiting 0, no room 0",
        "2 b/1 hold opcode=ACK direction=out: matched 1, taken 1, waiting 1, no room 0",
    ]
    assert lab.written() == 0
    assert lab.tell("release 2") == []
    lab.pair.run()
    assert lab.written() == 1
    assert len(lab.tell("rules b")) == 1
    assert lab.tell("remove 1") == lab.tell("remove b") == lab.tell("rules") == []
    lab.tell("delay a 5")
    assert lab.tell("remove all") == lab.tell("rules") == []


@pytest.mark.parametrize(
    "line",
    ["drop", "drop x", "drop a/2", "drop a smoke=1", "delay a", "rules x", "rules a b", "release",
     "release 7", "release x", "remove", "remove 7", "remove x", "remove a b"],
)  # fmt: skip
def test_nonsense_is_one_line(lab: Lab, line: str) -> None:
    (answer,) = lab.commands.execute(line)
    assert answer.startswith("error: ")


def test_programs_have_rules_for_a_while(lab: Lab) -> None:
    hardware = Hardware(lab.tell)
    with hardware.drop("a", kind="request", direction="out", count=1) as rule:
        lab.write()
        lab.pair.run(0.01)
        assert (lab.written(), rule.taken) == (0, 1)
        assert rule.counts() == {"matched": 1, "taken": 1, "waiting": 0, "no room": 0}
    assert lab.tell("rules") == []
    with hardware.hold("b", target_qpn=lab.pair.qa.qpn) as rule:
        lab.pair.run(0.1)
        assert lab.written() == 0
        rule.release()
        lab.pair.run()
        assert lab.written() == 1
    with hardware.delay("a", 1.5), hardware.duplicate("a", payload=b"\1\2") as rule:
        assert [line.partition(":")[0] for line in lab.tell("rules")] == [
            "3 a/1 delay 1.5",
            "4 a/1 duplicate 0 payload=0102",
        ]
        hardware.restore("a")
        with pytest.raises(LookupError):
            rule.counts()
    with pytest.raises(TypeError, match="smoke"), hardware.drop("a", smoke=1):
        pass
    hardware.unplug("a")
    assert not lab.pair.a.port.cable
    hardware.plug("a")
    assert lab.pair.a.port.cable


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what `bluebridge link` tells the server of a guest `a` with rules on both guests."""
    lines: list[str] = []

    def tell(guest: Guest, line: str) -> list[str]:
        lines.append(line)
        if line == "rules":
            return ["1 a/1 drop: matched 0", "2 a.1/2 drop: matched 0", "3 b/1 drop: matched 0"]
        return ["7"] if line.split()[0] in ACTIONS else []

    monkeypatch.setattr(guests, "find_up", lambda name: found("ab"))
    monkeypatch.setattr(Guest, "tell", tell)
    return lines


def run(words: str) -> int:
    """`bluebridge link`."""
    parser = argparse.ArgumentParser()
    link.add_arguments(parser)
    return link.main(parser.parse_args(words.split()))


@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        ("a down", "link a/1 down", "guest a: port 1: cable pulled out"),
        ("a --port 2 up", "link a/2 up", "guest a: port 2: cable plugged in"),
        ("a/2 drop", "drop a/2", "link a/2: rule 7: drop"),
        ("a.1/2 drop", "drop a.1/2", "link a.1/2: rule 7: drop"),
        (
            "a/2 delay 20 --kind request --source-qpn 0x49 --count 3",
            "delay a/2 20 kind=request source-qpn=0x49 count=3",
            "link a/2: rule 7: delay 20 kind=request source-qpn=0x49 count=3",
        ),
        (
            "a rewrite bth.pkey=0x1234 --opcode ACK",
            "rewrite a/1 bth.pkey=0x1234 opcode=ACK",
            "link a/1: rule 7: rewrite bth.pkey=0x1234 opcode=ACK",
        ),
        ("a duplicate", "duplicate a/1", "link a/1: rule 7: duplicate"),
        ("a release 7", "release 7", "rule 7: released"),
        ("a remove 7", "remove 7", "rule 7: removed"),
        ("a/2 restore", "remove a/2", "link a/2: no rules any more"),
        ("a rules", "rules", "1 a/1 drop: matched 0\n2 a.1/2 drop: matched 0"),
    ],
)
def test_the_command_line(
    told: list[str], capsys: pytest.CaptureFixture[str], words: str, line: str, said: str
) -> None:
    assert run(words) == 0
    assert told == [line]
    assert capsys.readouterr().out == said + "\n"


@pytest.mark.parametrize("words", ["a/2 drop --port 1", "a up --kind request", "a drop 5"])
def test_a_command_line_that_makes_no_sense(told: list[str], words: str) -> None:
    with pytest.raises(UsageError):
        run(words)
    assert told == []


def test_every_word_is_in_the_docs() -> None:
    page = (HOME / "docs" / "faults.md").read_text(encoding="utf-8")
    assert [word.name for word in WORDS if f"`--{word.name}" not in page] == []
    assert [action for action in ACTIONS if f"`{action}" not in page] == []


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--drop", "1%", "--seed", "7"], ["drop a/2 probability=0.01 seed=7"]),
        (["--drop", "message=3 psn=+4"], ["drop a/2 message=3 psn=+4"]),
        (["--hold", "opcode=ACK count=1"], ["hold a/2 opcode=ACK count=1"]),
        (["--delay", "2ms", "--corrupt", "0.5"],
         ["corrupt a/2 probability=0.5 seed=0", "delay a/2 2"]),
        (["--reorder", "1%", "--duplicate", "1%", "--delay", "500us"],
         ["duplicate a/2 probability=0.01 seed=0", "delay a/2 1 probability=0.01 seed=0",
          "delay a/2 0.5"]),
        (["--drop", "1%", "--mark", "10%", "--rewrite", "ipv4.ttl=1", "--partition"],
         ["rewrite a/2 ipv4.ttl=1", "ecn a/2 probability=0.1 seed=0",
          "drop a/2 probability=0.01 seed=0", "drop a/2"]),
        (["--rate", "1Gb", "--drop", "1%"],
         ["drop a/2 probability=0.01 seed=0", "rate a/2 1000"]),
        (["clear"], ["remove a/2"]),
    ],
)  # fmt: skip
def test_weather_is_rules(
    monkeypatch: pytest.MonkeyPatch, words: list[str], lines: list[str]
) -> None:
    told: list[str] = []
    monkeypatch.setattr(guests, "find_up", lambda name: found("ab"))

    def tell(_: Guest, line: str) -> list[str]:
        told.append(line)
        return ["1"]

    monkeypatch.setattr(Guest, "tell", tell)
    assert weather.main(parse_weather("a/2-b", *words)) == 0
    assert told == lines


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--drop", "lots"],
        ["--drop", "101%"],
        ["--delay", "2"],
        ["clear", "--drop", "1%"],
        ["--rate", "10"],
        ["--rate", "1Mb", "--delay", "1ms"],
    ],
)
def test_weather_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.setattr(guests, "find_up", lambda name: found("ab"))
    with pytest.raises(UsageError):
        weather.main(parse_weather("a-b", *words))


def test_weather_between_two_of_four_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "find_up", lambda name: found("abcd"))
    with pytest.raises(UsageError, match="leads to a switch"):
        weather.main(parse_weather("a-b", "--drop", "1%"))


def found(names: str) -> Guest:
    """The first of these guests, as the registry finds it."""
    pair = PairRecord(1, [GuestRecord(name) for name in names])
    return Guest(Entry(1, Path("/")), pair, names[0])


def parse_weather(*words: str) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    weather.add_arguments(parser)
    return parser.parse_args(words)
