"""`bluebridge log` as tests of its views run it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import pytest

from bluebridge.host_tools.analyzer import log_command as cli


class Said(NamedTuple):
    """Exit status of a command, and what it printed."""

    status: int
    out: str
    err: str

    def refused(self, why: str) -> None:
        """Hold it to status 2, no output, and one line of error that says `why`."""
        assert (self.status, self.out, self.err.count("\n")) == (2, "", 1)
        assert why in self.err


Run = Callable[..., Said]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `bluebridge log` with the words that it is called with."""

    def log(*words: object) -> Said:
        capsys.readouterr()
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        return Said(cli.main(parser.parse_args(list(map(str, words)))), *capsys.readouterr())

    return log
