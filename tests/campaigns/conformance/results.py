"""The results of a run: its journal, so that a stopped run can go on, and pages of docs/.

The journal has one JSON line for each program.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.host_tools.errors import UsageError
from bluebridge.images.cache import HOME
from tests.campaigns.conformance.program import FAILED, PASSED, SKIPPED, Verdict
from tests.campaigns.conformance.session import (
    BRIDGES,
    CONNECTX5_SETUPS,
    CONNECTX5_USERS,
    NETWORK,
    RXE,
    SETUPS,
    Setup,
)

PAGES = {
    HOME / "docs" / "conformance.md": SETUPS,
    HOME / "docs" / "ethernet-conformance.md": NETWORK,
    HOME / "docs" / "soft-roce-conformance.md": RXE,
    HOME / "docs" / "ntb-conformance.md": tuple(BRIDGES.values()),
    HOME / "docs" / "connectx5-conformance.md": (*CONNECTX5_SETUPS, CONNECTX5_USERS),
}
"""The setups whose programs each page is about."""


@dataclass(frozen=True)
class Entry:
    """A program that ran under a setup, and its verdicts: several when it reports many tests."""

    setup: str
    suite: str
    name: str
    seconds: float
    verdicts: tuple[Verdict, ...]

    @property
    def key(self) -> str:
        """The name of a program in a run: `setup/suite/name`."""
        return f"{self.setup}/{self.suite}/{self.name}"

    @property
    def failed(self) -> bool:
        """Whether any of its verdicts is a failure."""
        return any(verdict.status == FAILED for verdict in self.verdicts)

    def counts(self) -> Counter[str]:
        """Count the verdicts of each status."""
        return Counter(verdict.status for verdict in self.verdicts)


class Journal:
    """The entries of one run by their keys, kept in `folder`/results.jsonl."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there; raises `UsageError` when that is no journal."""
        self._file = folder / "results.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        self.entries = {entry.key: entry for entry in self._read()}

    def _read(self) -> Iterator[Entry]:
        if not self._file.exists():
            return
        for number, line in enumerate(self._file.read_text().splitlines(), 1):
            try:
                yield _entry(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise UsageError(
                    f"{self._file}, line {number}: no result of a run",
                    "name another folder, or remove that line",
                ) from error

    def passed(self, key: str) -> bool:
        """Whether the program has run and did not fail."""
        return key in self.entries and not self.entries[key].failed

    def add(self, entry: Entry) -> None:
        """Remember an entry in place of an older one, on disk at once."""
        self.entries[entry.key] = entry
        with self._file.open("a") as stream:
            stream.write(json.dumps(asdict(entry)) + "\n")

    def end(self) -> None:
        """Have the next run in this folder begin anew."""
        self._file.replace(self._file.with_name("complete.jsonl"))


def _entry(fields: dict[str, object]) -> Entry:
    verdicts = fields.pop("verdicts")
    if not isinstance(verdicts, list):
        raise TypeError("verdicts")
    return Entry(**fields, verdicts=tuple(Verdict(**found) for found in verdicts))  # type: ignore[arg-type]


_LACKING = (
    (".*Reg C is not supported", "this ConnectX-5 has no flow meters (`flow_meter_reg_id`)"),
    ("Crypto login details", "this ConnectX-5 encrypts nothing (`crypto`)"),
    ("cuda-python", "a guest has no GPU"),
    ("Create DC QP|DCI caps|SkipTest occurred on active", "this ConnectX-5 has no DC (`dct`)"),
    ("MEMIC atomic", "this ConnectX-5 has no MEMIC (`device_memory`)"),
    ("NIC flow table does not support reformat", "this ConnectX-5 has no `reformat` of packets"),
    ("NIC flow table does not support geneve", "this ConnectX-5 matches no Geneve"),
    ("The device doesn't support general HCA CAPs 2", "this ConnectX-5 has no `hca_cap_2`"),
    ("ODPv2", "this ConnectX-5 has one kind of page faults only (`mem_page_fault`)"),
    ("This test is not supported on cx5/6", "the test names this ConnectX-5 by part number"),
    (
        r".*DrTable creation failed",
        "software writes no flow tables of this ConnectX-5 (`sw_owner`): libmlx5 has the root only",
    ),
    ("Device mlx5_0 must be in switchdev mode", "this ConnectX-5 has no E-Switch"),
    ("PCI device must be passed", "over VFIO these tests are a row of their own"),
    ("Create custom mr with additional access", "no driver of either card has FLUSH"),
    ("Device memory", "mlx4_ib has none (`alloc_dm`), this ConnectX-5 no MEMIC (`device_memory`)"),
    (
        ".*Ipv[46](Ext)?Spec",
        "mlx4_ib knows rules for Ethernet, IB, IPv4, TCP, UDP (`parse_flow_attr`)",
    ),
    (".*UDP with RoCEv2", "the test names both ConnectX-3 by part number"),
    ("Extended CQ", "tag matching: libmlx4 has no such flag of a CQ"),
    ("Extended QP", "libmlx4 has no `ibv_qp_ex`, libmlx5 no ATOMIC_WRITE in it"),
    (
        "Flow creation",
        "mlx4_core keeps no rules unless loaded with `log_num_mgm_entry_size=-1`, as in roce-v2",
    ),
    ("ODP", "mlx4_ib pins memory"),
    ("Parent Domain", "libmlx4 has none"),
    ("Reg dma-buf", "mlx4_ib registers no DMA-BUF (`reg_user_mr_dmabuf`)"),
    ("SRQ resize", "`mlx4_ib_modify_srq` and `mlx5_ib_modify_srq` refuse it"),
    ("Tag matching", "this ConnectX-5 has none (`tag_matching`)"),
    ("Create (UD|Raw Packet) QP", "the test draws attributes, and not each is one of mlx5_ib's"),
    ("Device /dev/dri", "in this run; since then the test has /dev/udmabuf"),
    ("Operation not supported .*[Dd]r", "no software steering (`sw_owner`), no new headers"),
    ("Create Mlx5DV QP", "the card copies no memory at a program's wish (DMA MMO)"),
    ("Set LAG affinity", "there is one port"),
    ("Create Mkey", "no signatures (`sho`)"),
    ("DV QP OOO", "data of a connection is placed in order"),
    (".*CQE 128B", "`cqe_compression_128` and padding are 0"),
    ("ROCE must be disabled", "RoCE is on in all setups"),
    ("Alloc reserved QP", "this ConnectX-5 has no `hca_cap_2`"),
    ("Packet pacing|.*schedule elements", "`qos` is 0"),
    ("UAR allocation", "BlueFlame is off in this setup"),
    ("Modifying a QP UDP sport", "`rts2rts_qp_udp_sport` is 0"),
    ("VAR allocation", "the card emulates no virtio devices"),
    (
        "WQN must be aligned",
        "the test names both ConnectX-3 by part number; over aligned work queues it runs in dpdk",
    ),
    ("FEC not supported", "cables here have no errors: neither card has PPLM or its like"),
    ("Kernel built without function error injection", "nothing had mounted debugfs"),
    ("Not enough queues", "mlx4_en tells no statistics of queues"),
    ("Ntuple filters not enabled", "off at first on a ConnectX-5; mlx4_en keeps it off"),
    ("Unable to add any contexts", "mlx4_en has one context of RSS"),
    ("flavour not found", "mlx4_core gives its ports no flavour"),
    ("mlx4_en has no counters while it is down", "so it is over every card"),
    ("Test not started, no port", "a port of an adapter does not split"),
    ("Link layer|Must be run by root on Ethernet|To Create RAW QP", "the link is not Ethernet"),
    ("All gid indices", "an empty place in the table of an InfiniBand port"),
)
"""Beginnings of reasons as regular expressions, and what is missing."""


def lacking(reason: str) -> str:
    """Return what is missing where a test gives `reason`; empty if nobody has looked it up."""
    return next((why for begins, why in _LACKING if re.match(begins, reason)), "")


def table(entries: Sequence[Entry]) -> str:
    """One line per program, then one per failed or skipped test within it."""
    return "\n".join(line for entry in entries for line in lines(entry))


def lines(entry: Entry) -> Iterator[str]:
    """The lines of one program."""
    if len(entry.verdicts) == 1 and not entry.verdicts[0].part:
        (verdict,) = entry.verdicts
        yield f"{verdict.status:<8}{entry.seconds:6.1f} s  {entry.key}{_because(verdict)}"
        return
    counts = entry.counts()
    status = FAILED if entry.failed else PASSED
    told = ", ".join(f"{counts[each]} {each}" for each in (PASSED, FAILED, SKIPPED))
    yield f"{status:<8}{entry.seconds:6.1f} s  {entry.key}: {told}"
    for verdict in entry.verdicts:
        if verdict.status == FAILED:
            yield f"{verdict.status:<8}{'':8}    {verdict.part}{_because(verdict)}"


def _because(verdict: Verdict) -> str:
    return f": {verdict.reason}" if verdict.reason else ""


def failures(entries: Sequence[Entry]) -> list[str]:
    """A line for each failure."""
    return [
        f"- `{entry.key}{verdict.part and f': {verdict.part}'}`{_because(verdict)}"
        for entry in entries
        for verdict in entry.verdicts
        if verdict.status == FAILED
    ]


def page(old: str, setups: Sequence[Setup], entries: Sequence[Entry]) -> str:
    """Return the page `old` with these results: its words before the first table stay."""
    names = [setup.name for setup in setups]
    status: dict[str, dict[str, str]] = defaultdict(dict)
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for entry in entries:
        count = entry.counts()
        shown = next(each for each in (FAILED, PASSED, SKIPPED) if count[each])
        status[f"{entry.suite}: `{entry.name}`"][entry.setup] = shown
        counts[entry.suite][entry.setup] += count
    summary = {
        suite: {
            name: " / ".join(str(count[each]) for each in (PASSED, FAILED, SKIPPED))
            for name, count in found.items()
        }
        for suite, found in counts.items()
    }
    parts = [
        old.partition("\n| ")[0].rstrip("\n") + "\n",
        "| setup | what it is |\n|---|---|",
        *(f"| {setup.name} | {setup.what} |" for setup in setups),
        "",
        *_matrix("suite", names, summary),
        *("", "## Failed", *(failures(entries) or ["None."])),
        *("", "## Skipped, with the reason each printed, and what the card or its drivers lack"),
        *(_skips(entries) or ["None."]),
        *("", "## What each showed", *(_shown(entries) or ["Nothing else."])),
        *("", "## Programs", *_matrix("program", names, status)),
    ]
    return "\n".join(parts) + "\n"


def _matrix(head: str, names: Sequence[str], rows: dict[str, dict[str, str]]) -> Iterator[str]:
    yield f"| {head} | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 1) + "|"
    for title, found in rows.items():
        yield f"| {title} | " + " | ".join(found.get(name, "") for name in names) + " |"


def _skips(entries: Sequence[Entry]) -> list[str]:
    """Each reason of a skip, and below it what was skipped under which setups."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        for verdict in entry.verdicts:
            if verdict.status == SKIPPED:
                name = verdict.part or f"{entry.suite}/{entry.name}"
                reasons[verdict.reason][name].append(entry.setup)
    rows = []
    for reason, found in sorted(reasons.items()):
        why = lacking(reason)
        rows.append(f"- {reason}" + (f" *({why})*" if why else ""))
        rows += [f"  - `{name}` ({', '.join(setups)})" for name, setups in sorted(found.items())]
    return rows


def _shown(entries: Sequence[Entry]) -> list[str]:
    """Return the words of programs that passed, setup by setup."""
    told: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        words = "; ".join(
            f"{verdict.part}: {verdict.reason}" if verdict.part else verdict.reason
            for verdict in entry.verdicts
            if verdict.status == PASSED and verdict.reason
        )
        if words:
            told[f"- `{entry.suite}/{entry.name}`"].append(f"  - {entry.setup}: {words}")
    return [line for name, rows in told.items() for line in (name, *rows)]
