"""`python -m tests.hostile [--accesses N]`: attack a server, print what it and a bystander showed.

The exit status is 1 when an exception escaped, a descriptor leaked or the bystander saw a wrong
byte or completion. With `--strict` it is 1, too, when a call of the server's loop computed or
waited for more than 50 ms, or the bystander's answers, without what it and the server waited for a
processor, took longer than `--permille` (99.9 % of them) or `--worst` milliseconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from math import inf
from pathlib import Path

from bluebridge.device.cards import CARDS, DEFAULT
from bluebridge.device.layout.ntb.models import MODELS
from bluebridge.device.pyvfio_user import ENVIRONMENT
from bluebridge.images.artefacts import Artefacts
from tests.hostile.bystander import Report
from tests.hostile.campaign import Campaign, Outcome, Plan, attacks_on

MIB = 1 << 20


def main() -> int:
    options = _options()
    if not os.environ.get(ENVIRONMENT):
        os.environ[ENVIRONMENT] = str(Artefacts().libvfio_user())
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        plan = Plan(
            options.accesses, options.seed, options.seconds, options.bridge, only=options.only,
            card=options.card,
        )  # fmt: skip
        campaign = Campaign(plan, Path(folder), lambda text: print(text, file=sys.stderr))
        outcome = campaign.run(options.quiet)
    print(*lines(outcome), sep="\n")
    failed = outcome.exceptions or outcome.leaked or outcome.bystander.wrong
    late = too_late(outcome, options.permille, options.worst)
    if options.strict:
        print(*(f"too late: {line}" for line in late), sep="\n", end="\n" if late else "")
    return int(bool(failed or (options.strict and late)))


def too_late(outcome: Outcome, permille: float, worst: float) -> list[str]:
    """Return what took longer than permitted, a line each; times are in milliseconds."""
    report = outcome.bystander
    times = (
        ("99.9 % of the answers", report.own_permille * 1e3, permille),
        ("the worst answer", report.own_worst * 1e3, worst),
    )
    lines = [f"{what}: {took:.1f} ms of {most:g}" for what, took, most in times if took > most]
    return lines + outcome.stalls


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--accesses", type=int, default=100_000, help="(default 100000)")
    parser.add_argument("--seconds", type=float, default=inf, help="no longer than that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bridge", choices=[model.name for model in MODELS], default="intel-gen4")
    parser.add_argument("--card", choices=[*CARDS], default=DEFAULT, help="the attacker's adapter")
    names = {card: [each.__name__ for part in attacks_on(card) for each in part] for card in CARDS}
    words = "; ".join(f"{card}: {', '.join(attacks)}" for card, attacks in names.items())
    parser.add_argument("--only", default="", metavar="ATTACK", help=words)
    parser.add_argument("--quiet", type=float, default=10.0, help="seconds without attacks first")
    parser.add_argument("--strict", action="store_true", help="late answers fail the run, too")
    parser.add_argument("--permille", type=float, default=20.0, metavar="MS", help="(default 20)")
    parser.add_argument("--worst", type=float, default=100.0, metavar="MS", help="(default 100)")
    options = parser.parse_args()
    if options.only and options.only not in names[options.card]:
        parser.error(f"--only {options.only}: it is none of {', '.join(names[options.card])}")
    return options


def lines(outcome: Outcome) -> list[str]:
    first, most, last = (size / MIB for size in outcome.memory)
    attacks = ", ".join(f"{name} {count}" for name, count in sorted(outcome.by_attack.items()))
    return [
        f"hostile accesses: {outcome.accesses} in {outcome.seconds:.0f} s, {outcome.lives} guests",
        f"  {attacks}",
        f"escaped exceptions: {outcome.exceptions}",
        f"calls of more than 50 ms: {len(outcome.stalls)} lines",
        *(f"  {line}" for line in outcome.stalls[:10]),
        f"leaked descriptors: {outcome.leaked}",
        f"server's memory: {first:.1f} MiB after the first guest, {most:.1f} at most, "
        f"{last:.1f} at the end",
        f"bystander beside the attacks: {_times(outcome.bystander)}",
        f"bystander alone: {_times(outcome.quiet)}",
    ]


def _times(report: Report) -> str:
    return (
        f"{report.operations} operations, {report.wrong} wrong; answers p99.9 "
        f"{report.permille * 1e3:.1f} ms, worst {report.worst * 1e3:.1f} ms; without waiting "
        f"for a processor {report.own_permille * 1e3:.1f} and {report.own_worst * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
