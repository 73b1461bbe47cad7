"""The places in the lab: hosts, their functions, and a transaction's way between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bluebridge.device.buslog.record import function_of, host_of
from bluebridge.host_tools.analyzer.devices.model import DeviceKind
from bluebridge.host_tools.analyzer.devices.registry import model_of
from bluebridge.host_tools.analyzer.transaction import Role, Tlp, Transaction

_KINDS = {DeviceKind.ADAPTER: "HCA", DeviceKind.BRIDGE: "NTB", DeviceKind.ENGINE: "I/OAT"}


@dataclass(frozen=True, slots=True)
class Function:
    """A PCIe function: `kind` is `HCA`, `NTB` or `I/OAT`; `ports` are their names in the log."""

    name: str
    kind: str
    title: str
    ports: tuple[str, ...]


def hosts(devices: Iterable[str]) -> dict[str, list[Function]]:
    """Return the functions of each machine, by the machine's name, in the order of the log."""
    ports: dict[str, list[str]] = {}
    for device in devices:
        ports.setdefault(function_of(device), []).append(device)
    found: dict[str, list[Function]] = {}
    for name, own in ports.items():
        model = model_of(name)
        kind = _KINDS[model.kind]
        numbered = tuple(port if "/" in port else f"{port}/1" for port in own)
        function = Function(name, kind, model.title, numbered if model.is_adapter else ())
        found.setdefault(host_of(name), []).append(function)
    return dict(sorted(found.items()))


def way(one: Transaction, cause: Transaction | None, peer: str | None) -> list[str]:
    """Return the places a transaction passes: `a:cpu`, `a:memory`, `a:port`, `wire`, functions.

    `peer` is the function at the other end of the wire, None if there is none. A transaction whose
    cause is at the other host begins there, unless a message has brought it; a read goes there and
    back.
    """
    name, host = function_of(one.device), host_of(one.device)
    if one.tlp is Tlp.MESSAGE:
        return [name, "wire"] if peer is None else [name, "wire", peer]
    if one.tlp is Tlp.NONE:
        return [name]
    path = _on_bus(one, name, host)
    if cause is None or cause.tlp is Tlp.MESSAGE or host_of(cause.device) == host or peer is None:
        return path
    begun = function_of(cause.device)
    before = [begun] if begun == peer else [begun, f"{host_of(begun)}:port", peer]
    there = [*before, "wire"]
    return [*there, *path, *reversed(there)] if one.tlp in _READS else [*there, *path]


def _on_bus(one: Transaction, name: str, host: str) -> list[str]:
    """Return the way on the bus of one machine, for a read there and back."""
    cpu, memory, port = f"{host}:cpu", f"{host}:memory", f"{host}:port"
    if not one.upstream:
        there = [cpu, port, name]
    else:
        there = [name, port, cpu if one.role is Role.INTERRUPT else memory]
    return [*there, *there[-2::-1]] if one.tlp in _READS else there


_READS = (Tlp.MEMORY_READ, Tlp.CONFIG_READ)


def peers(devices: Iterable[str]) -> dict[str, str]:
    """Return the function at the other end of the wire by function, such as `b.ntb` for `a.ntb`.

    Functions on a network of more than two machines are left out.
    """
    names = {function_of(device) for device in devices}
    machines = sorted({host_of(name) for name in names})
    found = {}
    for name in names:
        host = host_of(name)
        twins = [other + name.removeprefix(host) for other in machines if other != host]
        there = [twin for twin in twins if twin in names]
        if len(there) == 1 and model_of(name).kind is not DeviceKind.ENGINE:
            found[name] = there[0]
    return found
