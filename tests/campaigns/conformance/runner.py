"""Running one program in a session: server, readiness, client, and what both came to."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bluebridge.host_tools.agent import CommandTimedOut
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.host_tools.programs.running import READY_SECONDS, Ended, Running
from tests.campaigns.conformance.program import FAILED, Program, Verdict, verdict
from tests.campaigns.conformance.results import Entry
from tests.campaigns.conformance.session import Session

_RUNS = 3
_EXTRA = 40.0


@dataclass(frozen=True)
class Patience:
    """The times that a run waits for a server, in seconds."""

    ready: float = READY_SECONDS
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
        a, b = self.session.pair.machines
        for path, content in self.program.files:
            b.agent.put(content, path)
        if not self.program.server:
            return verdict(self.program, self._client(b))
        fill = self.session.words.fill
        with Running(a, fill(self.program.server, "a"), self.program.limit + _EXTRA) as server:
            try:
                server.until(fill(self.program.ready, "a"), self.patience.ready)
                found = verdict(self.program, self._client(b))
                if not any(each.status == FAILED for each in found):
                    found = [*found, *self._served(server)]
            except CommandTimedOut:
                found = [Verdict(FAILED, "the server was not ready in time")]
            finally:
                server.stop()
                self._note("server", server)
        return found

    def _client(self, guest: Vm) -> Ended:
        line = self.session.words.fill(self.program.client, "b")
        with Running(guest, line, self.program.limit) as client:
            ended = client.wait()
            self._note("client", client)
        assert ended is not None
        return ended

    def _note(self, side: str, program: Running) -> None:
        self.texts.append((f"{side}: {program.line} (status {program.status})", program.output))

    def _served(self, server: Running) -> list[Verdict]:
        """Return the failures that a server's end adds to a client that passed."""
        if self.program.lasting:
            return []
        ended = server.wait(self.patience.end)
        if ended is None:
            return [Verdict(FAILED, "the server did not end after the client", "server")]
        if ended.status != 0:
            said = f"status {ended.status}: {ended.last_words}"
            return [Verdict(FAILED, said, "server")]
        return []
