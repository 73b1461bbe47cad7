"""The kernel's selftests of network drivers (drivers/net), over the card, unmodified.

They run in guest b, and on the peer by ssh as their README has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bluebridge.host_tools.errors import Reporter
from bluebridge.host_tools.lab.artefacts import unpack
from bluebridge.host_tools.programs.running import Ended, Running
from tests.campaigns.conformance import kernel_selftests, ssh
from tests.campaigns.conformance.kernel_selftests import PLACE, SELFTESTS
from tests.campaigns.conformance.program import FAILED, PASSED, SKIPPED, Program, Verdict
from tests.campaigns.conformance.session import CONNECTX3_NET, CONNECTX5, Session

TESTS = {
    "ping.py": 120,
    "queues.py": 120,
    "stats.py": 120,
    "hw/csum.py": 600,
    "hw/rss_ctx.py": 900,
    "hw/pp_alloc_fail.py": 120,
    "hw/devlink_port_split.py": 60,
}
"""Those that run between two machines with one port each, and their limits in seconds."""

_SCRIPT = Path(__file__).parent.parent / "in_guest_selftest.py"
_PLACE = "/tmp/selftest.py"
_V6 = {"a": "fd09::1", "b": "fd09::2"}
_RUN = (
    "ip -6 addr replace {v6}/64 dev {netdev} nodad; "
    f"cd /{PLACE}/{SELFTESTS}/drivers/net/{{folder}} && "
    "NETIF={netdev} LOCAL_V4={client} LOCAL_V6={v6} REMOTE_V4={server} REMOTE_V6={server6} "
    "REMOTE_TYPE=ssh REMOTE_ARGS=root@{server} exec python3 -u {script} {name} 2>&1"
)
_RESULT = re.compile(r"(not )?ok \d+ (\S+?)(?: # (SKIP|XFAIL) (.*))?")
_TROUBLE = re.compile(r"# (Check failed .*|Exception\| .*|Defer Exception\| .*)")
_SKIP_STATUS = 4
_LATE = re.compile(r"missing packets at \w+: 0 <|timed out after|Traffic seems low")
"""A failure that says nothing of the card: tests give a peer 2 or 5 seconds to begin, and want
15,000 packets of a second."""
_RUNS = 3
_OF_MLX4 = {"stats.check_down": "mlx4_en has no counters while it is down (`mlx4_get_base_stats`)"}
"""The tests that mlx4_en of Linux 6.12 fails over every card, and why."""


def programs() -> Iterator[Program]:
    """Each file of tests as a program, whose tests count one by one."""
    for path, limit in TESTS.items():
        steps = partial(_selftest, path=path, limit=limit)
        setups = (CONNECTX5, CONNECTX3_NET)
        yield Program("selftests", path, steps=steps, limit=limit, setups=setups)


def each_case(ended: Ended) -> list[Verdict]:
    """Return the verdicts over a run that told in KTAP, or that could not start.

    What a driver need not have (XFAIL) is skipped with its reason.
    """
    found: list[Verdict] = []
    trouble = ""
    for line in ended.output.splitlines():
        if told := _TROUBLE.match(line):
            trouble = told[1]
        elif result := _RESULT.fullmatch(line.rstrip()):
            failed, name, lacking, reason = result.groups()
            status = FAILED if failed else SKIPPED if lacking else PASSED
            found.append(Verdict(status, reason or (trouble if failed else ""), name))
            trouble = ""
    if not found:
        status = SKIPPED if ended.status == _SKIP_STATUS else FAILED
        return [Verdict(status, ended.last_words)]
    if ended.status is None:
        found.append(Verdict(FAILED, "no end in time", "run"))
    return found


def _selftest(session: Session, path: str, limit: float) -> Sequence[Verdict]:
    """Run one file of tests; the first of a session makes its guests ready."""
    _prepare(session)
    folder, _, name = path.rpartition("/")
    b = session.pair.b
    values = {
        "{v6}": _V6["b"],
        "{server6}": _V6["a"],
        "{folder}": folder,
        "{name}": name,
        "{script}": _PLACE,
    }
    line = _RUN
    for placeholder, value in values.items():
        line = line.replace(placeholder, value)
    found: list[Verdict] = []
    for _ in range(_RUNS):
        with Running(b, session.words.fill(line, "b"), limit) as running:
            ended = running.wait()
        assert ended is not None
        found = each_case(ended)
        if not any(each.status == FAILED and _LATE.search(each.reason) for each in found):
            break
    known = _OF_MLX4 if session.setup == CONNECTX3_NET else {}
    return [excused(each, known) for each in found]


def excused(found: Verdict, known: Mapping[str, str]) -> Verdict:
    """Return a verdict, or for a failure that is a driver's, by test in `known`, a skip."""
    if found.status == FAILED and found.part in known:
        return replace(found, status=SKIPPED, reason=known[found.part])
    return found


def _prepare(session: Session) -> None:
    if not ssh.connect(session):
        return
    a, b = session.pair.machines
    archive = kernel_selftests.archive(Reporter(quiet=True))
    for machine in (a, b):
        unpack(machine, [archive])
    a.run(f"ip -6 addr replace {_V6['a']}/64 dev {session.words.netdev} nodad")
    b.agent.put(_SCRIPT, _PLACE)
