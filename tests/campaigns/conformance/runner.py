"""Running one program in a session: server, readiness, client, and what both came to."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from bluebridge.host_tools.agent import Agent, Command, CommandTimedOut
from bluebridge.host_tools.errors import LabError
from tests.campaigns.conformance.program import (
    FAILED,
    Ended,
    Program,
    Verdict,
    verdict,
)
from tests.campaigns.conformance.results import Entry
from tests.campaigns.conformance.session import Session

_RUNS = 3
_SERVER_EXTRA = 40.0


@dataclass(frozen=True)
class Patience:
    """The times that a run waits for a server, in seconds."""

    ready: float = 20.0
    """The time until the server can be talked to."""
    end: float = 20.0
    """The time from the client's end until the server has ended."""


@dataclass
class Run:
    """A program's run in a session."""

    session: Session
    program: Program
    patience: Patience = Patience()
    texts: list[tuple[str, str]] = field(default_factory=list)
    """Title and text of what was printed, for the record."""
    broken: bool = False
    """Whether the session cannot be used for another program."""

    def entry(self) -> Entry:
        """Run it. Never raises `LabError`: trouble is a verdict."""
        start = time.monotonic()
        try:
            verdicts = list(self._run_up_to(_RUNS))
            if complaints := self.session.complaints():
                verdicts.append(Verdict(FAILED, complaints[0], "kernel messages"))
                self.texts.append(("kernel messages", "\n".join(complaints)))
            self.session.tidy(self.program.after)
        except LabError as error:
            self.broken = True
            verdicts = [Verdict(FAILED, str(error).splitlines()[0])]
            self.texts.append(("trouble", f"{error}\n{error.transcript}"))
        seconds = round(time.monotonic() - start, 1)
        setup, program = self.session.setup, self.program
        found = Entry(setup.name, program.suite, program.name, seconds, tuple(verdicts))
        self.broken = self.broken or found.failed
        return found

    def _run_up_to(self, times: int) -> Sequence[Verdict]:
        """Run it, and again while it prints what it is to be repeated for."""
        verdicts = self._run()
        said = any(re.search(self.program.repeat, text) for _, text in self.texts)
        if times > 1 and self.program.repeat and said:
            self.texts.clear()
            return self._run_up_to(times - 1)
        return verdicts

    def _run(self) -> Sequence[Verdict]:
        if self.program.steps is not None:
            return self.program.steps(self.session)
        a, b = (machine.agent for machine in self.session.pair.machines)
        for path, content in self.program.files:
            b.put(content, path)
        if not self.program.server:
            return verdict(self.program, self._client(b))
        with self._server(a) as server:
            if (late := self._wait_until_ready(a)) is not None:
                return [late]
            found = verdict(self.program, self._client(b))
            if any(each.status == FAILED for each in found):
                return found
            return [*found, *server.verdicts(self.program)]

    def _client(self, agent: Agent) -> Ended:
        line = self.session.words.fill(self.program.client, "b")
        ended = _wait(agent.start(line, self.program.limit))
        self.texts.append((f"client: {line} (status {ended.status})", ended.output))
        return ended

    @contextlib.contextmanager
    def _server(self, agent: Agent) -> Iterator[_Server]:
        line = self.session.words.fill(self.program.server, "a")
        command = agent.start(line, self.program.limit + _SERVER_EXTRA)
        server = _Server(command, self.patience.end)
        try:
            yield server
        finally:
            ended = server.end()
            self.texts.append((f"server: {line} (status {ended.status})", ended.output))

    def _wait_until_ready(self, agent: Agent) -> Verdict | None:
        condition = self.session.words.fill(self.program.ready, "a")
        try:
            agent.run(f"until {condition}; do sleep 0.05; done", timeout=self.patience.ready)
        except CommandTimedOut:
            return Verdict(FAILED, "the server was not ready in time")
        return None


class _Server:
    """A command whose output is collected by a thread of its own."""

    def __init__(self, command: Command, patience: float) -> None:
        """`patience`: seconds to wait for its end."""
        self._command = command
        self._patience = patience
        self._ended: Ended | None = None
        self._trouble: LabError | None = None
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            self._ended = _wait(self._command)
        except LabError as error:
            self._trouble = error

    def verdicts(self, program: Program) -> list[Verdict]:
        """Return the failures that a server's end adds to a client that passed."""
        if program.lasting:
            return []
        self._thread.join(self._patience)
        if self._trouble is not None:
            raise self._trouble
        if self._ended is None:
            return [Verdict(FAILED, "the server did not end after the client", "server")]
        if self._ended.status != 0:
            said = f"status {self._ended.status}: {self._ended.last_words}"
            return [Verdict(FAILED, said, "server")]
        return []

    def end(self) -> Ended:
        """See that it has ended: asked first, then killed."""
        ask: Callable[[], None] = partial(self._command.signal, signal.SIGTERM)
        for act in (ask, self._command.kill):
            if self._thread.is_alive():
                with contextlib.suppress(LabError):
                    act()
                self._thread.join(self._patience / 4)
        return self._ended or Ended(None, "")


def _wait(command: Command) -> Ended:
    try:
        completed = command.wait()
    except CommandTimedOut as error:
        return Ended(None, error.transcript)
    text = completed.stdout + completed.stderr
    return Ended(completed.status, text.decode(errors="replace"))
