"""Stock programs between two guests, one test each: the quick ones, and all of them as `long`.

With `--results DIR` what came out is kept there, and what passed there is not run again; with
`--card connectx5` they are those of the run about a ConnectX-5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.campaigns.conformance import results
from tests.campaigns.conformance.program import PASSED
from tests.campaigns.conformance.results import Journal
from tests.campaigns.conformance.runner import Run
from tests.campaigns.conformance.session import Session, Setup
from tests.campaigns.conformance.suites import Choice, everything, is_quick, key
from tests.vm.conftest import BOOT_SECONDS

_STEPS_SECONDS = 3600


def parameter(choice: Choice) -> object:
    """One test, with the time that it may take, its guests included."""
    _, program = choice
    seconds = _STEPS_SECONDS if program.steps else BOOT_SECONDS + 3 * program.limit
    marks = [pytest.mark.timeout(seconds)]
    return pytest.param(
        choice, id=key(choice), marks=marks if is_quick(choice) else [*marks, pytest.mark.long]
    )


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


@pytest.fixture(scope="module")
def journal(request: pytest.FixtureRequest) -> Journal | None:
    """Return what is kept of a run, if it is."""
    folder = request.config.getoption("results")
    return Journal(folder) if folder else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each program of the card that `--card` names."""
    chosen = everything(metafunc.config.getoption("card"))
    metafunc.parametrize("choice", [parameter(each) for each in chosen])


def test_a_program(choice: Choice, sessions: Sessions, journal: Journal | None) -> None:
    if journal is not None and journal.passed(key(choice)):
        pytest.skip("it has passed in this run")
    setup, program = choice
    session = sessions.of(setup)
    run = Run(session, program)
    entry = run.entry()
    if journal is not None:
        journal.add(entry)
    if run.broken:
        sessions.end()
    told = "\n".join(results.lines(entry))
    printed = "\n".join(f"=== {title}\n{text}" for title, text in run.texts)
    if entry.failed:
        pytest.fail(f"{told}\n{printed}\nlogs: {session.pair.logs}", pytrace=False)
    if not entry.counts()[PASSED]:
        pytest.skip(told)
