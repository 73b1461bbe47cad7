"""Orders to the emulated hardware, and faults of links that end with a `with` block."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.printable import printable

Tell = Callable[[str], list[str]]
Value = str | int | float | bytes
SOCKET = "hardware.sock"
"""The name of the device server's control socket in the folder of a pair."""
_SECONDS = 10.0
_LONGEST = 1 << 18


def tell(path: Path, line: str, seconds: float = _SECONDS) -> list[str]:
    """Have the server at `path` carry out a line; return its answer's lines without the final `ok`.

    Waits `seconds` for each part of the answer. A remark of the server, that the order is not in
    the log, goes to standard error. Raises `UsageError` with the server's objection,
    `LabError` when there is no answer.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(str(path))
            connection.sendall(f"{line}\n".encode())
            answer = _answer(connection)
    except OSError as error:
        raise LabError(
            f"the device server does not answer: {error.strerror or error}",
            "see `bluebridge ps` whether it runs",
        ) from error
    *lines, last = map(printable, answer.split("\n")[:-1])
    state, _, remark = last.partition(": ")
    if state != "ok":
        raise UsageError(last.removeprefix("error: "))  # which has its mend
    if remark:
        print(f"bluebridge: note: {remark}", file=sys.stderr)
    return lines


def _answer(connection: socket.socket) -> str:
    received = b""
    while len(received) < _LONGEST:
        last = received.rstrip(b"\n").rpartition(b"\n")[2]
        if received.endswith(b"\n") and last.partition(b": ")[0] in (b"ok", b"error"):
            return received.decode(errors="replace")
        data = connection.recv(_LONGEST)
        if not data:
            break
        received += data
    raise ConnectionError("it closed the connection")


@dataclass(frozen=True)
class FaultRule:
    """A rule in force on a link; `number` is its number in the device server."""

    number: int
    tell: Tell

    def counts(self) -> dict[str, int]:
        """Return `matched`, `taken`, `waiting` and `no room` of `bluebridge link NAME rules`.

        Raises `LookupError` when the rule is not in force any more.
        """
        for line in self.tell("rules"):
            if line.startswith(f"{self.number} "):
                counts = line.rpartition(": ")[2].split(", ")
                return {name: int(n) for name, n in (each.rsplit(" ", 1) for each in counts)}
        raise LookupError(f"rule {self.number} is not in force any more")

    @property
    def taken(self) -> int:
        """The number of messages that the rule has acted on."""
        return self.counts()["taken"]

    def release(self) -> None:
        """Deliver the messages that the rule holds back; the rule stays in force."""
        self.tell(f"release {self.number}")


RuleInForce = contextlib.AbstractContextManager[FaultRule]
"""A rule until the end of its `with` block."""


@dataclass(frozen=True)
class ArmedFault:
    """A fault by name that is armed in the HCA `hca` under a `number`."""

    hca: str
    number: int
    tell: Tell

    @property
    def taken(self) -> int:
        """The number of commands, completions or events that the fault has acted on."""
        for line in self.tell(f"armed {self.hca}"):
            if line.startswith(f"{self.number} "):
                return int(line.rpartition(" ")[2])
        raise LookupError(f"fault {self.number} is not armed any more")


class Hardware:
    """The links of a running device server, to which `tell` sends lines.

    A link is `a`, or `a/2` for the second port. Conditions are the words of docs/faults.md, with
    underscores: `source_qpn=0x49`. A rule ends with its `with` block, which delivers the messages
    that the rule holds back. Raises `UsageError` with the server's objection to a rule.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def drop(self, link: str, **words: Value) -> RuleInForce:
        """Drop the messages of a link that fulfil the conditions."""
        return self._rule("drop", link, "", words)

    def delay(self, link: str, milliseconds: float, **words: Value) -> RuleInForce:
        """Delay the messages of a link that fulfil the conditions by `milliseconds`."""
        return self._rule("delay", link, f" {milliseconds:g}", words)

    def duplicate(self, link: str, milliseconds: float = 0, **words: Value) -> RuleInForce:
        """Deliver messages of a link twice, the second time `milliseconds` later."""
        return self._rule("duplicate", link, f" {milliseconds:g}", words)

    def corrupt(self, link: str, **words: Value) -> RuleInForce:
        """Damage packets of a link so that their receiver drops them."""
        return self._rule("corrupt", link, "", words)

    def flip(self, link: str, **words: Value) -> RuleInForce:
        """Invert one bit of the payload of messages of a link, with check sums that hide it."""
        return self._rule("flip", link, "", words)

    def mark(self, link: str, **words: Value) -> RuleInForce:
        """Mark packets of a link that know of ECN as having met congestion."""
        return self._rule("ecn", link, "", words)

    def rewrite(self, link: str, field: str, value: int, **words: Value) -> RuleInForce:
        """Store a value into a header field of packets of a link, such as `bth.pkey`."""
        return self._rule("rewrite", link, f" {field}={value}", words)

    def rate(self, link: str, megabits: float, **words: Value) -> RuleInForce:
        """Let messages of a link arrive one after the other, at most `megabits` Mb/s each way."""
        return self._rule("rate", link, f" {megabits:g}", words)

    def hold(self, link: str, **words: Value) -> RuleInForce:
        """Hold back messages of a link that fulfil the conditions, until the rule is released."""
        return self._rule("hold", link, "", words)

    @contextlib.contextmanager
    def fault(self, hca: str, name: str, **words: str | int) -> Iterator[ArmedFault]:
        """Arm a fault of `bluebridge fault list` in an HCA until the end of the block.

        `hca` is `a`, or `a.1` for its second one. Those that happen at once have number 0.
        """
        said = {
            word.replace("_", "-"): value for word, value in words.items() if value is not False
        }
        line = "".join(f" {word}={value}" for word, value in said.items())
        number = int((self._tell(f"arm {hca} {name}{line}") or ["0"])[0])
        try:
            yield ArmedFault(hca, number, self._tell)
        finally:
            if number:
                self._tell(f"disarm {hca} {number}")

    def plug(self, link: str) -> None:
        """Connect the cable of a link."""
        self._tell(f"link {link} up")

    def unplug(self, link: str) -> None:
        """Disconnect the cable of a link; the guest sees its link go down."""
        self._tell(f"link {link} down")

    def restore(self, link: str) -> None:
        """End all rules of a link, and deliver the messages that they hold back."""
        self._tell(f"remove {link}")

    @contextlib.contextmanager
    def _rule(
        self, action: str, link: str, value: str, words: dict[str, Value]
    ) -> Iterator[FaultRule]:
        number = int(self._tell(f"{action} {link}{value}{_line(words)}")[0])
        try:
            yield FaultRule(number, self._tell)
        finally:
            if any(line.startswith(f"{number} ") for line in self._tell("rules")):
                self._tell(f"remove {number}")


def _line(words: dict[str, Value]) -> str:
    """Conditions as the control socket reads them; raises `TypeError` for another name."""
    text = ""
    from bluebridge.device.fabric.fault_words import WORDS  # not for `ps`, which imports little

    known = {word.name for word in WORDS}
    for name, value in words.items():
        word = name.replace("_", "-")
        if word not in known:
            raise TypeError(f"a rule has no condition {name!r}, but {', '.join(sorted(known))}")
        text += f" {word}={value.hex() if isinstance(value, bytes) else value}"
    return text
