"""The control socket: lines of text that change links, faults and the log, or ask what there is.

    link NAME[/PORT] up|down    plug the cable of a port, or of a NIC, in, or pull it
    fault NAME [TEXT]           an internal error: the adapter stops until software resets it;
                                answers whether a driver had initialised it
    wires                       a line for each host on the other side of a wire between hosts, and
                                for each NIC
    status                      a line for each port, and how often it used addresses of others
    profile start               from now on, sample what the server does
    profile stop FILE           write the stacks found, with their counts, one a line
    mark [@GUEST] TEXT          a note in the log, which `bluebridge log --from-mark TEXT` begins
                                at; it is of the functions of GUEST only
    log stop [TEXT]             end the log, for a reason that it then has; devices go on
    ACTION NAME[/PORT] [VALUE] [WORD=VALUE ...]    a fault rule; answers with its number
    rules [NAME[/PORT]]         all rules, or those of a link, with their counts
    release NUMBER              deliver what a rule keeps
    remove NUMBER|NAME[/PORT]|all    end a rule, those of a link, or all
    stats                       `bluebridge.device.server.stats`
    show                        `bluebridge.device.server.show_control`
    arm, armed, disarm          `bluebridge.device.server.named_faults`

`bluebridge.device.fabric.fault_words` has the actions and words of rules. Lines that change
something are in the bus log, in front of what they cause, and once more if they were refused. The
answer to a line is zero or more lines of text and then `ok`, perhaps with a remark (`ok: `), or
`error: ` and the reason. An order that could not be recorded, since the log's disk is full or the
log was stopped, has that remark; a mark is an error then.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from bluebridge.device.buslog.marks import MAX_TEXT
from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.fault_words import ACTIONS, DRIVEN, UNDRIVEN
from bluebridge.device.fabric.faults.parse import rule_of
from bluebridge.device.fabric.faults.stage import FaultRules
from bluebridge.device.layout.events import Fact
from bluebridge.device.pci.loop import EventLoop
from bluebridge.device.server.adapters import Adapter
from bluebridge.device.server.named_faults import GuestBridge, NamedFaultCommands, fail
from bluebridge.device.server.networks import Listener
from bluebridge.device.server.nic import Nic
from bluebridge.device.server.show_control import ShowCommands

CHANGES = ("link", "fault", *ACTIONS, "release", "remove", "arm", "disarm")
"""First words of lines that change something and that therefore are noted in the bus log."""
OK = "ok"
_UNRECORDED = "not in the bus log, which has ended"
_WRITTEN_SECONDS = 0.02
"""The time that an order may wait until it is in the log; nobody waits longer for others."""
MAX_LINE = 4096
MAX_CLIENTS = 16
BACKLOG = 16
INTERVAL_SECONDS = 0.001
MAX_DEPTH = 40
"""Of the profiler: seconds of processor time between samples, and functions of a stack."""
_DIGITS = 9
"""Digits of a rule's number, at most."""
_SHOWN = 80
"""Characters of an invalid number or line that an error message repeats."""
Action = Callable[[Sequence[str]], list[str]]
"""What a line does, by the words behind its first: it returns lines, or raises `ValueError`."""


class ControlCommands:
    """Executes the lines of the control socket on the HCAs of a server, given by name.

    `trespassed` counts, by the names of links (`a/1`), a port's uses of addresses of others
    (`LocalFabric.trespasses`), `show` answers what functions hold, `wires` what went to hosts and
    NICs, `stats` what the server counts; `bridges` are those of guests, `nics` those of a server,
    by name; what the lines change is noted in `events`.
    """

    def __init__(
        self,
        hcas: Mapping[str, Adapter],
        faults: FaultRules,
        trespassed: Mapping[str, Callable[[], tuple[int, int]]] | None = None,
        events: EventLog | None = None,
        show: ShowCommands | None = None,
        wires: Callable[[], list[str]] | None = None,
        bridges: Mapping[str, GuestBridge] | None = None,
        nics: Mapping[str, Nic] | None = None,
        stats: Action | None = None,
    ) -> None:
        self._hcas = hcas
        self._nics = nics or {}
        self._trespassed = trespassed or {}
        self._sampler = Sampler()
        self._events = events or EventLog()
        self._faults = faults
        named = NamedFaultCommands(self._hca, list(hcas), faults, bridges or {})
        rule = "NAME[/PORT] [WORD=VALUE ...]"
        self._words: dict[str, tuple[Action, str, int, int]] = {
            "link": (self._link, "NAME[/PORT] up|down", 2, 2),
            "fault": (self._fault, "NAME [TEXT]", 1, MAX_LINE),
            "status": (self._status, "", 0, 0),
            "profile": (self._profile, "start, or: profile stop FILE", 1, 2),
            "mark": (self._mark, "TEXT", 1, MAX_LINE),
            "log": (self._log, "stop [TEXT]", 1, MAX_LINE),
            **{action: (self._adding(action), rule, 1, MAX_LINE) for action in ACTIONS},
            "rules": (self._rules, "[NAME[/PORT]]", 0, 1),
            "release": (self._release, "NUMBER", 1, 1),
            "remove": (self._remove, "NUMBER|NAME[/PORT]|all", 1, 1),
            "arm": (named.arm, "NAME FAULT [WORD=VALUE ...]", 2, MAX_LINE),
            "armed": (named.armed, "[NAME]", 0, 1),
            "disarm": (named.disarm, "NAME [NUMBER]", 1, 2),
        }
        """What follows the first word of a line, with the least and the largest number of words."""
        if show is not None:
            self._words["show"] = (show.show, "", 0, MAX_LINE)
        if stats is not None:
            self._words["stats"] = (stats, "", 0, 0)
        if wires is not None:
            self._words["wires"] = (lambda _: wires(), "", 0, 0)

    def execute(self, line: str) -> list[str]:
        """Execute one line; return the answer's lines, of which the last is `ok` or an error."""
        words = line.split()
        if not words or words[0] not in self._words:
            return [f"error: {line.strip()[:_SHOWN]!r} is none of {', '.join(self._words)}"]
        changes = words[0] in CHANGES
        action, form, least, most = self._words[words[0]]
        try:
            if changes:
                self._log_order(words)
            if not least <= len(words) - 1 <= most:
                raise ValueError(f"write: {words[0]} {form}".rstrip())
            return [*action(words[1:]), self._done(changes)]
        except (ValueError, OSError) as error:
            if changes:
                self._log_order(words, str(error))
            return [f"error: {error}"]

    def _done(self, changes: bool) -> str:
        """Return the last line of an answer, which says if the order is not in the log."""
        why = self._events.missing(_WRITTEN_SECONDS) if changes and self._events.active else ""
        return f"{OK}: the order is {_UNRECORDED}: {why}" if why else OK

    def _log_order(self, words: Sequence[str], error: str = "") -> None:
        """Log a line under the HCA that it names, by a rule's number perhaps, else the first."""
        events = self._events
        if not events.active:
            return
        name = words[1] if len(words) > 1 else ""
        if name.isdecimal() and len(name) <= _DIGITS:
            rules = self._faults.table()
            name = next((link for link, rule in rules if rule.number == int(name)), "")
        name = name.partition("/")[0]
        if name not in self._hcas and name not in self._nics:
            name = next(iter(self._hcas), "")
        events.work = 0
        events.tell(events.device(name), Fact.CONTROL, line=" ".join(words), error=error)

    # -- adapters and their ports -------------------------------------------------------------

    def _hca(self, name: str) -> Adapter:
        if not self._hcas:
            raise ValueError("there is no HCA: start the pair with `bluebridge up --hca`")
        if name not in self._hcas:
            raise ValueError(f"there is no HCA {name!r}, but {', '.join(self._hcas)}")
        return self._hcas[name]

    def _port(self, text: str) -> tuple[str, int]:
        """Return the name and port number of `NAME[/PORT]`; raises `ValueError`."""
        name, _, number = text.partition("/")
        count = 1 if name in self._nics else len(self._hca(name).ports)
        if not (number or "1").isdecimal() or not 1 <= int(number or "1") <= count:
            raise ValueError(f"{name!r} has no port {number!r}, but 1 to {count}")
        return name, int(number or "1")

    def _link(self, words: Sequence[str]) -> list[str]:
        if words[1] not in ("up", "down"):
            raise ValueError("write: link NAME[/PORT] up|down")
        name, number = self._port(words[0])
        nic = self._nics.get(name)
        end = self._hca(name).ports[number - 1] if nic is None else nic
        end.plug(words[1] == "up")
        return []

    def _fault(self, words: Sequence[str]) -> list[str]:
        hca = self._hca(words[0])
        driven = hca.initialised
        fail(hca, " ".join(words[1:]) or "injected")
        return [DRIVEN if driven else UNDRIVEN]

    def _status(self, words: Sequence[str]) -> list[str]:
        lines = []
        for name, hca in self._hcas.items():
            state = "failed" if hca.failed else "working"
            for port in hca.ports:
                cable = "in" if port.cable else "out"
                link = "up" if port.link_up else "down"
                line = f"{name}/{port.number} {state} cable {cable} link {link}"
                lines.append(line + self._trespasses(f"{name}/{port.number}"))
        return lines

    def _trespasses(self, link: str) -> str:
        """Describe how often a port used addresses that belong to others; empty for never."""
        count = self._trespassed.get(link)
        spoofed, refused = (0, 0) if count is None else count()
        if not spoofed and not refused:
            return ""
        return f" addresses of others: {spoofed} messages dropped, {refused} claims refused"

    def _profile(self, words: Sequence[str]) -> list[str]:
        if list(words) == ["start"]:
            self._sampler.start()
        elif len(words) == 2 and words[0] == "stop":
            self._sampler.stop(Path(words[1]))
        else:
            raise ValueError("write: profile start, or: profile stop FILE")
        return []

    # -- the log ------------------------------------------------------------------------------

    def _mark(self, words: Sequence[str]) -> list[str]:
        self._check_active()
        if self._events.stopped:
            raise ValueError("the log has been stopped: `bluebridge ps` says why")
        device, mark = 0, Fact.MARK
        functions = self._events.functions_of(words[0][1:]) if words[0].startswith("@") else []
        if functions:
            device, mark = self._events.device(functions[0]), Fact.GUEST_MARK
            words = words[1:]
        if not words:
            raise ValueError("write: mark TEXT")
        self._events.work = 0
        self._events.tell(device, mark, text=_bounded(words))
        if why := self._events.missing(_WRITTEN_SECONDS):
            raise ValueError(f"the mark is {_UNRECORDED}: {why}")
        return []

    def _log(self, words: Sequence[str]) -> list[str]:
        self._check_active()
        if words[0] != "stop":
            raise ValueError("write: log stop [TEXT]")
        if not self._events.stop(_bounded(words[1:]) or "by hand"):
            raise ValueError("the log has been stopped already: `bluebridge ps` says why")
        return []

    def _check_active(self) -> None:
        if not self._events.active:
            raise ValueError("there is no bus log: start the server with --log DIR")

    # -- fault rules --------------------------------------------------------------------------

    def _link_of(self, text: str) -> str:
        """Return the name of the link of `NAME[/PORT]`, with its port; raises `ValueError`."""
        name, number = self._port(text)
        return f"{name}/{number}"

    def _adding(self, action: str) -> Action:
        def add(words: Sequence[str]) -> list[str]:
            link = self._link_of(words[0])
            return [str(self._faults.add(link, rule_of(action, words[1:])))]

        return add

    def _rules(self, words: Sequence[str]) -> list[str]:
        wanted = [self._link_of(word) for word in words]
        return [
            f"{rule.number} {link} {rule.words}: matched {rule.matched}, taken {rule.taken}, "
            f"waiting {len(rule.kept)}, no room {rule.lost}"
            for link, rule in self._faults.table()
            if not wanted or link in wanted
        ]

    def _release(self, words: Sequence[str]) -> list[str]:
        self._faults.release(_number(words[0]))
        return []

    def _remove(self, words: Sequence[str]) -> list[str]:
        if words[0].isdecimal():
            self._faults.remove(_number(words[0]))
        else:
            self._faults.remove_all(None if words[0] == "all" else self._link_of(words[0]))
        return []


def _bounded(words: Sequence[str]) -> str:
    """Return the text of a mark or of a reason; raises `ValueError` when it is too long."""
    text = " ".join(words)
    if len(text) > MAX_TEXT:
        raise ValueError(f"the text has {len(text)} letters; at most {MAX_TEXT} are possible")
    return text


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS:
        raise ValueError(
            f"{text[:_SHOWN]!r} is no number of a rule: `bluebridge link GUEST rules` lists them"
        )
    return int(text)


class Sampler:
    """Counts the stacks found when the process's timer expires; for the main thread only.

    A sample is taken when Python code next runs: the time of a call into C counts for its caller.
    """

    def __init__(self) -> None:
        self._stacks: Counter[str] = Counter()

    def start(self) -> None:
        """Start to count stacks, with all counts at zero."""
        self._stacks.clear()
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def stop(self, file: Path) -> None:
        """End counting and write the stacks to `file`; raises OSError.

        A line is `module.function;module.function;… COUNT`, the outermost function first.
        """
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = (f"{stack} {count}\n" for stack, count in self._stacks.most_common())
        file.write_text("".join(lines))

    def _sample(self, _: int, frame: FrameType | None) -> None:
        names: list[str] = []
        while frame is not None and len(names) < MAX_DEPTH:
            names.append(f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}")
            frame = frame.f_back
        self._stacks[";".join(reversed(names))] += 1


class ControlSocket:
    """A Unix socket at `path` whose lines are executed by `commands`. Raises `OSError`."""

    def __init__(self, path: Path, commands: ControlCommands, loop: EventLoop) -> None:
        self._commands = commands
        self._loop = loop
        self._clients: dict[int, tuple[socket.socket, bytearray]] = {}
        self._listener = Listener("control", path, loop, self._take, BACKLOG)

    def close(self) -> None:
        """End listening and remove the socket."""
        for number in list(self._clients):
            self._drop(number)
        self._listener.close()

    def _take(self, client: socket.socket) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            self._drop(next(iter(self._clients)))
        number = client.fileno()
        self._clients[number] = client, bytearray()
        self._loop.add_reader(number, lambda: self._read(number))

    def _read(self, number: int) -> None:
        client, waiting = self._clients[number]
        try:
            data = client.recv(MAX_LINE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        waiting += data
        while (end := waiting.find(b"\n")) >= 0:
            line = waiting[:end].decode(errors="replace")
            del waiting[: end + 1]
            answer = "".join(f"{text}\n" for text in self._commands.execute(line))
            with contextlib.suppress(OSError):  # a client that does not read gets no answer
                client.sendall(answer.encode())
        if not data or len(waiting) > MAX_LINE:
            self._drop(number)

    def _drop(self, number: int) -> None:
        client, _ = self._clients.pop(number)
        self._loop.remove_reader(number)
        client.close()
