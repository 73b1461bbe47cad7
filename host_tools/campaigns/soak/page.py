"""docs/soak.md, from a run that came to its end."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.soak import report
from bluebridge.host_tools.campaigns.soak.kernel_log import KNOWN, RECOVERY, SLOW_HOST, slow_host
from bluebridge.host_tools.campaigns.soak.rounds import Rounds, Run
from bluebridge.images.source import HOME

PAGE = HOME / "docs" / "soak.md"
_TEXT = """\
# The soak

`make soak` (`python -m bluebridge.host_tools.campaigns.soak [--minutes N] [--seed N]`) keeps two
guests with the kernel's mlx4 drivers busy for an hour at one device server, and writes this page
when it came through.

A round is drawn by lot: a brief program of the conformance run, or something that is done to the
drivers of one or both guests, idle or under traffic. Modules are unloaded and loaded, devices
reloaded with devlink, cables pulled, adapters broken until their driver has mended them; every
{kill_every} rounds a guest is killed and a new one restored at the same server. The seed decides it
all: a run with the seed of another one does the same in the same order.

After every round

- both kernels' logs must hold nothing that is a warning or worse by the kernel's own level, nor a
  line that speaks of an error; the exceptions are listed below,
- the device server must have said nothing on its standard error,
- after what was done to drivers, both guests must answer each other's pings, with all addresses
  and GIDs back,
- the server's own memory (anonymous resident pages; guest memory is not counted) and its open files
  are noted. Flat is: the median of the last quarter of the rounds exceeds that of the first by
  {bound} MiB at most, and that of the files by nothing.

The first failed round (`--failures N`: the Nth) ends the run with status 1 and the path of its
transcript, which holds what every program and both kernels said; the bus log is beside it. Ctrl-C
ends it with the table so far. `--judge DIR` judges a run anew by its transcript, by the lists below
as they are now, and writes this page if it passes.

## The last run

| machine | |
|---|---|
{machine}

{rounds} rounds in {minutes:.0f} minutes, seed {seed}: **{verdict}**.

{stocks}

{table}

## What kernels may say

At any time:

{known}

When the host lets a virtual processor wait, which they measure with the wall clock ({slow} lines in
this run):

{slow_host}

A guest whose adapter was broken, in that round only, and it must say that it recovered:

{recovery}
"""


def page(rounds: Rounds, run: Run) -> str:
    """The whole page."""
    return _TEXT.format(
        kill_every=run.kill_every,
        bound=report.MEMORY_BOUND >> 20,
        machine="\n".join(f"| {name} | {value} |" for name, value in run.machine.rows()),
        rounds=len(rounds.done),
        minutes=run.minutes,
        seed=run.seed,
        verdict="passed" if report.passed(rounds.done) else "failed",
        stocks="\n".join(f"- {line}" for line in report.stocks(rounds.done)),
        table=report.table(rounds.done),
        known=_listed(KNOWN),
        slow=slow_host(rounds.transcript.read_text(errors="replace").splitlines()),
        slow_host=_listed(SLOW_HOST),
        recovery=_listed(RECOVERY),
    )


def _listed(patterns: dict[str, str]) -> str:
    return "\n".join(f"- `{pattern}`: {reason}" for pattern, reason in patterns.items())
