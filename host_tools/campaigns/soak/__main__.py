"""An hour of disturbances and traffic, and its verdict."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.campaigns.conformance.setups import INFINIBAND, ROCE, Setup
from bluebridge.host_tools.campaigns.soak import judge, page, report
from bluebridge.host_tools.campaigns.soak.plan import Plan, Turn, carry_out
from bluebridge.host_tools.campaigns.soak.rounds import Round, Rounds, Run
from bluebridge.host_tools.campaigns.soak.session import SoakSession
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.host_description import HostDescription
from bluebridge.host_tools.processes.termination import termination_as_exception
from bluebridge.host_tools.progress import Progress, Reporter
from bluebridge.images.source import HOME

_RUNS = HOME / "build" / "soak"
_SETUPS = {setup.name: setup for setup in (ROCE, INFINIBAND)}
_WHOLE = 60.0
"""Minutes from which on a run is worth a page."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit status.

    0: nothing failed, nothing grew. 1: something did. 2: a wrong command line. 130: stopped by
    Ctrl-C, 128 + the number of another signal that did.
    """
    options = _parser().parse_args(argv)
    if options.judge is not None:
        return _judge(options.judge)
    rounds = Rounds(_RUNS / time.strftime("%Y%m%d-%H%M%S"))
    progress = Reporter()
    progress(f"{options.minutes:g} minutes, --seed {options.seed}; log: {rounds.transcript}")
    start = time.monotonic()
    try:
        with termination_as_exception():
            accelerator = _soak(options, rounds, progress)
    except LabError as error:
        rounds.say(f"trouble: {error}", error.transcript)
        return _failed(rounds, str(error))
    except KeyboardInterrupt:
        return _stopped(rounds, 130)
    except SystemExit as stop:  # of `termination_as_exception`
        return _stopped(rounds, int(stop.code or 0))
    minutes = (time.monotonic() - start) / 60
    machine = HostDescription.here(accelerator)
    run = Run(options.setup.name, options.seed, options.kill_every, minutes, machine)
    if len(rounds.failed) < options.failures:
        rounds.end(run)
    if report.passed(rounds.done):
        _write_page(rounds, run)
        print(f"{_summary(rounds.done)}\nsoak: passed")
        return 0
    return _failed(rounds, _reason(rounds))


def _write_page(rounds: Rounds, run: Run) -> None:
    """What a whole run on the usual link came to."""
    if run.minutes >= _WHOLE and run.setup == ROCE.name:
        page.PAGE.write_text(page.page(rounds, run))
        print(f"written: {page.PAGE}")


def _soak(options: argparse.Namespace, rounds: Rounds, progress: Progress) -> str:
    """Rounds until the time is over or one fails; the name of the guests' accelerator."""
    plan = Plan(options.seed, options.setup, options.kill_every)
    progress(f"a pair of guests: {options.setup.what}")
    with SoakSession(options.setup, rounds.folder / "logs", rounds.say) as session:
        _round(Turn("drivers come up", "both", lambda *_: session.complaints()), session, rounds)
        end = time.monotonic() + 60 * options.minutes
        while time.monotonic() < end and len(rounds.failed) < options.failures:
            turn = plan.next()
            rounds.say(f"round {len(rounds.done)}: {turn.what}")
            progress(_line(_round(turn, session, rounds)))
        return session.pair.accelerator


def _round(turn: Turn, session: SoakSession, rounds: Rounds) -> Round:
    """Play a turn and remember it."""
    start = time.monotonic()
    failures = carry_out(turn, session, rounds)
    seconds = round(time.monotonic() - start, 2)
    stock = None if session.pair.server.trouble() else session.stock()
    number = len(rounds.done)
    found = Round(number, turn.kind, turn.what, seconds, stock, tuple(failures))
    rounds.add(found)
    return found


def _line(found: Round) -> str:
    stock = found.stock
    has = f"{stock.memory / (1 << 20):.2f} MiB, {stock.files} files" if stock else "no server"
    told = "".join(f"\n    FAILED: {line}" for line in found.failures)
    return f"{found.number:4} {found.seconds:6.1f} s  {has}  {found.what}{told}"


def _summary(done: Sequence[Round]) -> str:
    return "\n".join([report.table(done), "", f"{len(done)} rounds", *report.stocks(done)])


def _reason(rounds: Rounds) -> str:
    if not rounds.failed:
        return "something piles up in the device server"
    first = rounds.failed[0]
    return f"{len(rounds.failed)} rounds, first {first.number} ({first.what}): {first.failures[0]}"


def _judge(folder: Path) -> int:
    """What came of an earlier run, by the lists of today."""
    try:
        done = judge.anew(folder)
        run = judge.the_run(folder)
    except UsageError as error:
        print(f"soak: {error}", file=sys.stderr)
        return error.status
    print(_summary(done))
    for found in done:
        if found.failures:
            print(_line(found))
    if run is not None and report.passed(done):
        rounds = Rounds(folder)
        rounds.done = done
        _write_page(rounds, run)
    print(f"soak: {'passed' if report.passed(done) else 'failed'}")
    return 0 if report.passed(done) else 1


def _stopped(rounds: Rounds, status: int) -> int:
    print(_summary(rounds.done))
    print(f"soak: stopped; what was said: {rounds.transcript}", file=sys.stderr)
    return status


def _failed(rounds: Rounds, why: str) -> int:
    print(_summary(rounds.done))
    print(f"soak: failed: {why}; read {rounds.transcript}", file=sys.stderr)
    return 1


def _setup(name: str) -> Setup:
    if name not in _SETUPS:
        raise argparse.ArgumentTypeError(f"there is no {name}, but {' and '.join(_SETUPS)}")
    return _SETUPS[name]


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError("more than 0, please")
    return minutes


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError("no number below 0, please")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bluebridge.host_tools.campaigns.soak", description=__doc__
    )
    parser.add_argument("--minutes", type=_minutes, default=_WHOLE, help="how long (60)")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.SystemRandom().randrange(1 << 16),
        help="do what the run with this seed did; by default a new one, which is printed",
    )
    parser.add_argument(
        "--kill-every", type=_number, default=20, metavar="N", help="rounds per killed guest (20)"
    )
    parser.add_argument(
        "--failures", type=_number, default=1, metavar="N", help="end after N failed rounds (1)"
    )
    parser.add_argument(
        "--judge", type=Path, metavar="DIR", help="run nothing; judge the run in DIR anew"
    )
    parser.add_argument(
        "--setup", type=_setup, default=ROCE, help=f"the link: {', '.join(_SETUPS)} (roce)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
