"""`bluebridge stats`: the counters of device servers, also for a system that gathers metrics."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from typing import Any

from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import guests, registry
from bluebridge.host_tools.lab import hardware

Family = dict[str, Any]
"""A quantity with its samples, as `bluebridge.device.server.stats` tells it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        "Print the counters of the device servers: messages, retries, faults taken, the longest "
        "call of the loop. Counters of adapters and ports are those that guests see."
    )
    parser.add_argument(
        "guest", metavar="GUEST", nargs="?", help="its pair only (default: all pairs)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--openmetrics", action="store_true", help="text of OpenMetrics, as node_exporter reads it"
    )
    form.add_argument("--json", action="store_true", help="a JSON list of quantities")


def main(options: argparse.Namespace) -> int:
    """Print the counters; returns 0, raises `LabError` when nothing runs."""
    found = merged(
        (str(number), [json.loads(line) for line in hardware.tell(control, "stats")])
        for number, control in _servers(options.guest)
    )
    if options.openmetrics:
        print("\n".join(openmetrics(found)))
    elif options.json:
        print(json.dumps(found))
    else:
        for family in found:
            for sample in family["samples"]:
                words = " ".join(f"{name}={value}" for name, value in sample["labels"].items())
                print(f"{family['name']:26} {sample['value']:>12} {words}")
    return 0


def _servers(name: str | None) -> Iterator[tuple[int, Any]]:
    if name is not None:
        pair = guests.find_up(name).pair
        yield pair.number, pair.control
        return
    pairs = [pair for _, pair in registry.pairs() if pair.control is not None]
    if not pairs:
        raise UsageError("nothing runs", "start a pair with `bluebridge up`")
    for pair in pairs:
        yield pair.number, pair.control


def merged(pairs: Iterable[tuple[str, list[Family]]]) -> list[Family]:
    """Return the quantities of several pairs, whose samples have the label `pair`.

    A name that stands once is a condition of OpenMetrics.
    """
    found: dict[str, Family] = {}
    for number, families in pairs:
        for family in families:
            kept = found.setdefault(family["name"], {**family, "samples": []})
            for sample in family["samples"]:
                labels = {"pair": number, **sample["labels"]}
                kept["samples"].append({**sample, "labels": labels})
    return list(found.values())


def openmetrics(families: Iterable[Family]) -> Iterator[str]:
    """Yield the lines of an exposition (OpenMetrics 1.0, "Text Format")."""
    for family in families:
        name = f"bluebridge_{family['name']}"
        yield f"# TYPE {name} {family['type']}"
        if family["unit"]:
            yield f"# UNIT {name} {family['unit']}"
        yield f"# HELP {name} {family['help']}"
        suffix = "_total" if family["type"] == "counter" else ""
        for sample in family["samples"]:
            words = ",".join(f'{key}="{value}"' for key, value in sample["labels"].items())
            yield f"{name}{suffix}{{{words}}} {sample['value']}"
    yield "# EOF"
