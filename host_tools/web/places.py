"""Where things are: hosts, their functions, and the way of a transaction between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bluebridge.device.buslog.analysis.transaction import Role, Tlp, Transaction
from bluebridge.device.buslog.bridges import family
from bluebridge.device.layout.ioat.registers import LOG_SUFFIX as ENGINE
from bluebridge.device.layout.ntb.models import BY_LOG_SUFFIX


@dataclass(frozen=True, slots=True)
class Function:
    """A PCIe function: `kind` is `HCA`, `NTB` or `I/OAT`; `ports` are names in the log."""

    name: str
    kind: str
    title: str
    ports: tuple[str, ...]


def host_of(device: str) -> str:
    """The machine of a device: `a` of `a`, `a/2`, `a.1` and `a.ntb`."""
    return device.partition("/")[0].partition(".")[0]


def function_of(device: str) -> str:
    """The function that a port belongs to: `a` of `a/2`."""
    return device.partition("/")[0]


def hosts(devices: Iterable[str]) -> dict[str, list[Function]]:
    """The functions of each machine, by the machine's name, in the order of the log."""
    ports: dict[str, list[str]] = {}
    for device in devices:
        ports.setdefault(function_of(device), []).append(device)
    found: dict[str, list[Function]] = {}
    for name, own in ports.items():
        kind, title = _kind(name)
        numbered = tuple(port if "/" in port else f"{port}/1" for port in own)
        function = Function(name, kind, title, numbered if kind == "HCA" else ())
        found.setdefault(host_of(name), []).append(function)
    return dict(sorted(found.items()))


def _kind(name: str) -> tuple[str, str]:
    suffix = family(name)
    if suffix == ENGINE:
        return "I/OAT", "I/OAT engine"
    if suffix:
        return "NTB", f"bridge, {BY_LOG_SUFFIX[suffix].name}"
    return "HCA", "HCA"


def way(one: Transaction, cause: Transaction | None, peer: str | None) -> list[str]:
    """The places that a transaction passes: `a:cpu`, `a:memory`, `a:port`, a function, `wire`.

    `peer` is the function at the other end of the wire, None if there is none. A transaction whose
    cause is at the other host begins there.
    """
    name, host = function_of(one.device), host_of(one.device)
    cpu, memory, port = f"{host}:cpu", f"{host}:memory", f"{host}:port"
    if one.tlp is Tlp.MESSAGE:
        return [name, "wire"] if peer is None else [name, "wire", peer]
    if one.tlp is Tlp.NONE:
        return [name]
    if not one.upstream:
        return [cpu, port, name, port, cpu] if one.tlp in _READS else [cpu, port, name]
    if one.role is Role.INTERRUPT:
        return [name, port, cpu]
    if one.tlp is Tlp.MEMORY_READ:
        return [name, port, memory, port, name]
    crossed = cause is not None and host_of(cause.device) != host and cause.tlp is not Tlp.MESSAGE
    before = [function_of(cause.device), "wire"] if cause is not None and crossed else []
    return [*before, name, port, memory]


_READS = (Tlp.MEMORY_READ, Tlp.CONFIG_READ)


def peers(devices: Iterable[str]) -> dict[str, str]:
    """The function at the other end of the wire, for each that has one: `a.ntb` and `b.ntb`."""
    names = {function_of(device) for device in devices}
    machines = sorted({host_of(name) for name in names})
    found = {}
    for name in names:
        host = host_of(name)
        for other in machines:
            twin = other + name.removeprefix(host)
            if other != host and twin in names and family(name) != ENGINE:
                found[name] = twin
    return found
