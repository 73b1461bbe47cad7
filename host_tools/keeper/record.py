"""A pair in words: what its keeper starts, its record while it runs, why it ended."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from bluebridge.device import cards
from bluebridge.host_tools.errors import listed
from bluebridge.host_tools.lab import hardware
from bluebridge.host_tools.lab.roots import runtime_root, state_root

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from bluebridge.host_tools.hosts.holder import Holder
    from bluebridge.host_tools.lab.config import LabConfig


STARTING, RUNNING, RESTARTING, ENDED, ENDING = (
    "starting",
    "running",
    "restarting",
    "ended",
    "ending",
)
"""States. A guest is starting, running, restarting or ended; a pair starting, running, ending."""


@dataclass
class GuestRecord:
    """The record of one side, a guest or a host; paths are text for JSON."""

    name: str
    state: str = STARTING
    why: str = ""
    """One clause that says why the guest ended; empty if it did not."""
    remark: str = ""
    """The console's last message of a kernel in trouble; the guest may still be usable."""
    pid: int = 0
    """The process id of QEMU."""
    transcript: str = ""
    console: str = ""
    """The path of the serial console's socket, on which QEMU serves one client."""
    agents: list[str] = field(default_factory=list)
    """The paths of the sockets of the agent's ports."""
    devices: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    """The PCI functions of a side that is a host, as words of `HostFunction`; else empty."""

    def programs(self) -> list[Holder]:
        """Return the programs of this machine that drive a host's functions."""
        if not self.functions:
            return []
        from bluebridge.host_tools.hosts.functions import HostFunction  # not where no host is
        from bluebridge.host_tools.hosts.holder import holder

        sockets = [HostFunction.parse(word).socket for word in self.functions]
        found = [holder(socket) for socket in sockets]
        return list(dict.fromkeys(each for each in found if each is not None))

    @property
    def called(self) -> str:
        """The side in words for people: `guest a` or `host b`."""
        return f"{'host' if self.functions else 'guest'} {self.name}"


@dataclass
class PairRecord:
    """The record of a running pair, with its guests and processes."""

    number: int
    guests: list[GuestRecord]
    keeper: int = 0
    """The process id of the keeper."""
    server: int = 0
    """The process id of the device server, 0 without one."""
    state: str = STARTING
    why: str = ""
    started: float = 0.0
    """The time of the pair's start, in seconds since the epoch."""
    logs: str = ""
    folder: str = ""
    """The path of the pair's sockets; empty until it is up."""
    modules: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def guest(self, name: str) -> GuestRecord:
        """Return the record of the guest called `name`; raises `KeyError`."""
        for guest in self.guests:
            if guest.name == name:
                return guest
        raise KeyError(name)

    def names(self) -> Iterator[str]:
        """Return the names of the pair's guests."""
        return (guest.name for guest in self.guests)

    @property
    def sides(self) -> str:
        """The sides in words for people: `guests a and b`, or `guest a, host b`."""
        if any(guest.functions for guest in self.guests):
            return ", ".join(guest.called for guest in self.guests)
        return f"guests {listed(self.names())}"

    @property
    def control(self) -> Path | None:
        """The path of the device server's control socket; None while there is none."""
        return Path(self.folder) / hardware.SOCKET if self.folder else None

    def write(self, path: Path) -> None:
        """Replace the file at `path`; a reader sees the old one or the new one.

        Raises `OSError` that names the file.
        """
        draft = path.with_name(f".{path.name}")
        try:
            draft.write_text(json.dumps(asdict(self)))
            os.replace(draft, path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error

    @classmethod
    def read(cls, path: Path) -> PairRecord:
        """Read the record at `path`; fields that only another version has are left out.

        Raises `OSError` when there is no such file.
        """
        told: dict[str, Any] = json.loads(path.read_text())
        told["guests"] = [GuestRecord(**_known(GuestRecord, guest)) for guest in told["guests"]]
        return cls(**_known(cls, told))


def _known(kind: type[DataclassInstance], told: dict[str, Any]) -> dict[str, Any]:
    """Return the items of `told` that are fields of the dataclass `kind`."""
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in told.items() if name in names}


def guest_names(number: int, count: int = 2) -> tuple[str, ...]:
    """Return the names of a pair's guests by the pair's number: a and b, a2 and b2, and so on.

    A lab of more guests goes on with c.
    """
    suffix = "" if number == 1 else str(number)
    return tuple(f"{letter}{suffix}" for letter in ascii_lowercase[:count])


@dataclass(frozen=True)
class EndRecord:
    """The record of a pair that ended: how, when, and where its logs are."""

    number: int
    guests: tuple[str, ...]
    why: str
    logs: str
    written: float
    """The time of the record, in seconds since the epoch."""


def write_end(number: int, guests: tuple[str, ...], why: str, logs: str) -> None:
    """Write the record of pair `number` in place of an older one; `OSError`s are ignored."""
    ended = EndRecord(number, guests, why, logs, time.time())
    with contextlib.suppress(OSError):
        path = _path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(ended)))
        os.replace(draft, path)


def forget_end(number: int) -> None:
    """Remove the record of pair `number`, if there is one, as the pair ended on demand."""
    with contextlib.suppress(OSError):
        _path(number).unlink()


def ended(living: set[int]) -> list[EndRecord]:
    """Return the records of pairs whose numbers are not among `living`, sorted by number."""
    found = []
    for path in sorted(_folder().glob(f"{_key()}-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            fields = json.loads(path.read_text())
            ended = EndRecord(**{**fields, "guests": tuple(fields["guests"])})
            if ended.number not in living:
                found.append(ended)
    return sorted(found, key=lambda each: each.number)


def _folder() -> Path:
    return state_root() / "ended"


def _key() -> str:
    """Return a text that tells the pairs of one runtime root from those of another."""
    return hashlib.sha256(os.fsencode(runtime_root().resolve())).hexdigest()[:12]


def _path(number: int) -> Path:
    return _folder() / f"{_key()}-{number}.json"


@dataclass(frozen=True)
class Plan:
    """The configuration of a pair, and the archives and modules that its guests get."""

    config: LabConfig
    modules: tuple[Path, ...] = ()
    """Kernel modules to load in all guests, in this order."""
    archives: tuple[Path, ...] = ()
    """Archives to unpack over the root of all guests, before the modules."""
    verbose: bool = False
    """Whether `up` reports every step of the start."""

    def devices(self, name: str) -> tuple[str, ...]:
        """Return the devices of guest `name` in words for people."""
        config = self.config
        found = []
        if config.has_nic(name):
            found.append("virtio NIC (rdma_rxe)")
        if config.has_hca(name):
            hcas, card = "HCA" if config.hcas == 1 else f"{config.hcas} HCAs", config.card(name)
            hcas += "" if card.name == cards.DEFAULT else f" {card.title}"
            found.append(_driven(hcas, config, name, card.driver))
        if config.bridge:
            found.append(_driven(f"NTB {config.bridge.ntb_model}", config, name, "ntb_netdev"))
            found.append(_driven("DMA engine", config, name, "ioatdma"))
        return tuple(found)


def _driven(device: str, config: LabConfig, name: str, driver: str) -> str:
    if config.is_host(name):
        return device
    if config.kernel_drives(name):
        return f"{device} ({driver})"
    return f"{device} (vfio-pci)" if config.binds(name) else device
