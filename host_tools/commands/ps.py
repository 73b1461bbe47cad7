"""`bluebridge ps`: lists the pairs that run and those that have ended."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.keeper import record, registry
from bluebridge.host_tools.keeper.record import EndRecord, GuestRecord, PairRecord
from bluebridge.host_tools.lab import hardware

_STEPS = ((86400, "d"), (3600, "h"), (60, "min"))
_ANSWER_SECONDS = 1.0
STOPPED = "stopped"
"""The state of a guest or pair one of whose processes is stopped; the keeper has no such state."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def main(options: argparse.Namespace) -> int:
    """Print pairs and guests; returns 0."""
    pairs = [pair for _, pair in registry.pairs()]
    for pair in pairs:
        _find_stopped(pair)
    ended = record.ended({pair.number for pair in pairs})
    if options.json:
        print(json.dumps(_as_json(pairs, ended), indent=2))
        return 0
    for pair in pairs:
        show(pair)
    for each in ended:
        print(f"pair {each.number}  ended: {each.why}")
        print(f"  logs: {each.logs}")
    if strange := registry.strangers():
        more = f" and {len(strange) - 1} more" if strange[1:] else ""
        print(f"note: no pairs, but with the names of some: {strange[0]}{more}")
    if not pairs and not ended:
        print("nothing runs; `bluebridge up` starts a pair")
    return 0


def _find_stopped(pair: PairRecord) -> None:
    """Set the state of a pair and of its guests to `STOPPED` where a process is stopped."""
    told: list[tuple[PairRecord | GuestRecord, str, int]] = [
        (pair, "server", pair.server),
        (pair, "keeper", pair.keeper),
        *((guest, "QEMU", guest.pid) for guest in pair.guests),
    ]
    for whose, name, pid in told:
        if pid and _is_stopped(pid):
            whose.state = STOPPED
            whose.why = f"its {name} {pid} was stopped; go on with: kill -CONT {pid}"


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0] in ("T", "t")
    return False


def _as_json(pairs: list[PairRecord], ended: list[EndRecord]) -> dict[str, Any]:
    now = time.time()
    living = [
        {
            **asdict(pair),
            "guests": [
                {**asdict(guest), "programs": [each._asdict() for each in guest.programs()]}
                for guest in pair.guests
            ],
            "uptime": round(now - pair.started, 1),
            "ports": [
                {"port": row[0], "hca": row[1], "cable": row[3], "link": row[5]}
                for row in map(str.split, _asked(pair, "status"))
                if len(row) >= 6
            ],
            "wire": _asked(pair, "wires"),
            "log_stopped": _log_stopped(pair),
        }
        for pair in pairs
    ]
    return {"pairs": living, "ended": [asdict(each) for each in ended]}


def show(pair: PairRecord) -> None:
    """Print a pair, its guests, and notes such as why its log was stopped."""
    state = f"{pair.state}: {pair.why}" if pair.why else pair.state
    age = duration(time.time() - pair.started)
    server = f"server {pair.server}  " if pair.server else ""
    print(f"pair {pair.number}  {state}  up {age}  {server}keeper {pair.keeper}")
    for guest in pair.guests:
        print(f"  {guest.name:<4} {_state(guest)}")
    for line in _asked(pair, "status"):
        if remark := remark_of(line):
            print(f"  note: {remark}")
    for line in _asked(pair, "wires"):
        print(f"  wire: {line}")
    if stopped := _log_stopped(pair):
        print(f"  note: the bus log was stopped: {stopped}")
    for warning in pair.warnings:
        print(f"  note: {warning}")
    if pair.logs:
        print(f"  logs: {pair.logs}")


def _log_stopped(pair: PairRecord) -> str:
    """Return why the bus log ended before the pair (`up --stop-on`); empty if it did not."""
    # Imported when there is a pair: `ps` says at once that nothing runs.
    from bluebridge.device.buslog.reader import LogError, LogReader

    with contextlib.suppress(LogError):
        return LogReader(Path(pair.logs)).stopped
    return ""


def _asked(pair: PairRecord, line: str) -> list[str]:
    """Return the answer of the device server's control socket; empty if there is none."""
    with contextlib.suppress(LabError):
        if pair.server and pair.control is not None:
            return hardware.tell(pair.control, line, _ANSWER_SECONDS)
    return []


def remark_of(line: str) -> str:
    """Return the remark on a port (HCA failed, cable out, addresses of others), else ""."""
    port, state, _, cable, *_ = line.split()
    remarks = []
    if state == "failed":
        remarks.append("its HCA has failed (internal error) and works again after a reset")
    if cable == "out":
        remarks.append(f"its cable is out; plug it in: bluebridge link {port} up")
    _, found, trespasses = line.partition("addresses of others")
    if found:
        remarks.append(f"addresses of others{trespasses}")
    return f"port {port}: {'; '.join(remarks)}" if remarks else ""


def _state(guest: GuestRecord) -> str:
    if guest.why:
        return f"{guest.state}: {guest.why}"
    if guest.functions:
        programs = [f"{each}{_stopped(each.pid)}" for each in guest.programs()]
        held = programs or [f"no program; `bluebridge python {guest.name}` runs one"]
        return "  ".join(["host", ", ".join(guest.devices), *held])
    words = [guest.state]
    words += [f"QEMU {guest.pid}"] if guest.pid else []
    words += [", ".join(guest.devices) or "no device"]
    words += [f"its console says: {guest.remark}"] if guest.remark else []
    return "  ".join(words)


def _stopped(pid: int) -> str:
    return f", stopped; go on with: kill -CONT {pid}" if _is_stopped(pid) else ""


def duration(seconds: float) -> str:
    """Return a time span of `seconds` as text in its largest unit."""
    for size, unit in _STEPS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
