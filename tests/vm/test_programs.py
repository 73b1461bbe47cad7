"""The quick stock programs of the conformance campaign, one test each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.campaigns.conformance import results
from tests.campaigns.conformance.program import PASSED
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import Session, Setup
from tests.campaigns.conformance.suites import Choice, everything, in_short_run, key

QUICK = [choice for choice in everything() if in_short_run(choice)]


class Sessions:
    """One session at a time: the next program of its setup has it too, if none has broken it."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self.stack = contextlib.ExitStack()
        self._folders = folders
        self._open: Session | None = None

    def of(self, setup: Setup) -> Session:
        """The session that is open, or a new one."""
        if self._open is None or self._open.setup != setup:
            self.end()
            logs = self._folders.mktemp(setup.name)
            self._open = self.stack.enter_context(Session(setup, logs))
        return self._open

    def end(self) -> None:
        """End the guests."""
        self._open = None
        self.stack.close()


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sessions]:
    made = Sessions(tmp_path_factory)
    yield made
    made.end()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("choice", QUICK, ids=key)
def test_a_program(choice: Choice, sessions: Sessions) -> None:
    setup, program = choice
    session = sessions.of(setup)
    run = Run(session, program)
    entry = run.entry()
    if run.broken:
        sessions.end()
    told = "\n".join(results.lines(entry))
    printed = "\n".join(f"=== {title}\n{text}" for title, text in run.texts)
    if entry.failed:
        pytest.fail(f"{told}\n{printed}\nlogs: {session.pair.logs}", pytrace=False)
    if not entry.counts()[PASSED]:
        pytest.skip(told)
