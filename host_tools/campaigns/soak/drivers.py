"""The changes that the soak makes to drivers, cables, adapters and guests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from bluebridge.host_tools.campaigns.soak import traffic
from bluebridge.host_tools.campaigns.soak.session import SoakSession
from bluebridge.host_tools.machine.vm import Vm

_ALL = ("mlx4_ib", "mlx4_en", "mlx4_core")
_SECONDS = 120.0
_FAULT_SECONDS = 180.0
_RECOVERED = "until dmesg | grep -q 'mlx4_restart_one was ended'; do sleep 0.2; done"

Disturbance = Callable[[SoakSession, Sequence[Vm]], None]
"""Disturbs some of the guests; raises `LabError` when it goes wrong."""


def reload_modules(*modules: str) -> Disturbance:
    """Return a disturbance that unloads `modules` and loads all of mlx4 again."""

    def disturbance(session: SoakSession, machines: Sequence[Vm]) -> None:
        line = f"modprobe -r {' '.join(modules or _ALL)}"
        session.pair.together(*(partial(_run, machine, line) for machine in machines))

    return disturbance


def devlink_reload(session: SoakSession, machines: Sequence[Vm]) -> None:
    """Run `devlink dev reload`, by which mlx4_core takes the device down and up again."""
    line = 'devlink dev reload "$(devlink dev show | head -n 1)"'
    session.pair.together(*(partial(_run, machine, line) for machine in machines))


def cable(session: SoakSession, machines: Sequence[Vm]) -> None:
    """Pull the cable out until the guest has noticed, and plug it in again."""
    for machine in machines:
        session.pair.server.tell(f"link {machine.name} down")
        _carrier(session, machine, 0)
        session.pair.server.tell(f"link {machine.name} up")
        _carrier(session, machine, 1)


def interface(session: SoakSession, machines: Sequence[Vm]) -> None:
    """Set the network device down and up, as an administrator would."""
    for machine in machines:
        _run(machine, session.words.fill("ip link set {netdev} down; ip link set {netdev} up"))
        _carrier(session, machine, 1)


def fault(session: SoakSession, machines: Sequence[Vm]) -> None:
    """Break the adapter and wait until its driver has mended it."""
    for machine in machines:
        session.recovering.add(machine.name)
        session.pair.server.tell(f"fault {machine.name} injected by the soak")
    recovered = [partial(_run, machine, _RECOVERED, _FAULT_SECONDS) for machine in machines]
    session.pair.together(*recovered)


def kill(session: SoakSession, machines: Sequence[Vm]) -> None:
    """Kill the guest's QEMU and restore a new guest at the same device server."""
    for machine in machines:
        session.pair.restart(machine.name)
        session.forget_boot(machine)


def under(load: str, disturbance: Disturbance) -> Disturbance:
    """Return `disturbance` with traffic: `frames`, or `writes` with RDMA WRITEs as well."""

    def loaded(session: SoakSession, machines: Sequence[Vm]) -> None:
        with contextlib.ExitStack() as stack:
            if load:
                stack.enter_context(traffic.flowing(session, writes=load == "writes"))
            disturbance(session, machines)

    return loaded


def _run(machine: Vm, line: str, seconds: float = _SECONDS) -> None:
    machine.run(line, timeout=seconds)


def _carrier(session: SoakSession, machine: Vm, value: int) -> None:
    path = session.words.fill("/sys/class/net/{netdev}/carrier")
    _run(machine, f"until grep -q {value} {path}; do sleep 0.05; done")
