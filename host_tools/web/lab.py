"""The lab of a page: hosts, functions, their state, and the actions of the buttons."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bluebridge.device.buslog.reader import LogReader
from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.keeper.record import PairRecord
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.progress import listed
from bluebridge.host_tools.web.timeline import Function, hosts, peers

_SECONDS = 2.0  # The seconds that the device server may take to answer


class Lab:
    """A log, and the control socket of the server that writes it, if one runs."""

    def __init__(self, reader: LogReader, title: str, socket: Path | None = None) -> None:
        self.reader = reader
        self.title = title
        self.socket = socket

    def description(self) -> dict[str, Any]:
        """Return what does not change: hosts with their functions, and the wires between them."""
        devices = self.reader.meta["devices"]
        began, started = self.reader.meta.get("started_ns"), ""  # by its writer's clock
        if isinstance(began, int):
            started = datetime.fromtimestamp(began / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        found = hosts(devices)
        functions = {
            host: [asdict(each) for each in functions] for host, functions in found.items()
        }
        return {
            "title": self.title if self.socket else f"hosts {' and '.join(found)}: {self.title}",
            "started": started,
            "hosts": functions,
            "peers": peers(devices),
            "running": self.socket is not None,
            "dropped": self.reader.dropped_text if self.reader.dropped else "",
        }

    def ports(self) -> list[dict[str, Any]] | None:
        """Return the state of each HCA port; None when no server answers."""
        if self.socket is None:
            return None
        with contextlib.suppress(LabError):
            lines = hardware.tell(self.socket, "status", _SECONDS)
            return [state for line in lines if (state := _state(line))]
        return None

    def act(self, word: str, name: str, action: str = "") -> str:
        """Pull or plug a cable, or break an HCA; return a line for the user. Raises `LabError`."""
        if self.socket is None:
            raise LabError("this log is not of a pair that runs", "start one with `bluebridge up`")
        ports = [port for each in self._functions() for port in each.ports]
        if word == "link" and name in ports and action in ("up", "down"):
            hardware.tell(self.socket, f"link {name} {action}")
            return f"{name}: cable {'plugged in' if action == 'up' else 'pulled'}"
        adapters = [each.name for each in self._functions() if each.kind == "HCA"]
        if word == "fault" and name in adapters:
            hardware.tell(self.socket, f"fault {name}")
            return f"{name}: its HCA has failed; a driver that is bound resets it within 5 s"
        raise UsageError(f"{word} {name} {action}: there is no such button", "reload the page")

    def _functions(self) -> Iterator[Function]:
        for functions in hosts(self.reader.meta["devices"]).values():
            yield from functions


def _state(line: str) -> dict[str, Any] | None:
    """Return the fields of a line of `status`, such as `a/1 working cable in link up`."""
    words = line.split()
    if len(words) < 6:
        return None
    return {
        "port": words[0],
        "failed": words[1] != "working",
        "cable": words[3] == "in",
        "link": words[5] == "up",
    }


def find(folder: Path | None) -> tuple[Path, str, Path | None]:
    """Return a log, its title, and the control socket if a pair writes it, or raise `LabError`."""
    running = [pair for _, pair in registry.pairs() if pair.logs]
    if folder is None:
        if not running:
            raise LabError(
                "nothing runs", "start a pair with `bluebridge up`, or name a log's folder"
            )
        pair = running[-1]
        return Path(pair.logs), _title(pair), pair.control
    real = folder.resolve()
    for pair in running:
        if real in (Path(pair.logs).resolve(), (Path(pair.logs) / "bus").resolve()):
            return folder, _title(pair), pair.control
    parent = real.parent if real.name == "bus" else real
    return folder, f"log {parent.name}", None


def _title(pair: PairRecord) -> str:
    return f"pair {pair.number}: guests {listed(pair.names())}"
