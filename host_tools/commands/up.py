"""`bluebridge up`: starts pairs that stay until `bluebridge down`."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

from bluebridge.host_tools.commands.up_options import DEBUG, bridge, check_together, hardware
from bluebridge.host_tools.errors import Reporter, UsageError, listed
from bluebridge.host_tools.keeper.claims import next_number
from bluebridge.host_tools.keeper.launch import launch
from bluebridge.host_tools.keeper.record import PairRecord, Plan, ended, forget_end, guest_names
from bluebridge.host_tools.lab import lab_options
from bluebridge.host_tools.lab.artefacts import debug_archive, device_library, ensure_artefacts
from bluebridge.host_tools.lab.config import LIMITS, LabConfig
from bluebridge.host_tools.processes import termination_as_exception

_IDLE_GUEST_MIB = 450
"""The memory of QEMU in MiB for a restored, idle guest of 1024 MiB (VmRSS)."""
_SERVER_MIB = 40
"""The memory of a device server in MiB before there is traffic."""


def main(options: argparse.Namespace) -> int:
    """Start pairs, wait until they are ready, print how to reach them; return the exit status.

    Raises `LabError`.
    """
    begin = time.monotonic()
    plan = _plan(options)
    _for_pair(plan, next_number(), options)  # a wrong name is told before minutes of building
    with termination_as_exception():
        # Here, not in a keeper: building takes minutes, and tells of each step on standard error.
        quiet = Reporter(quiet=True)
        if len(plan.config.hosts) < options.guests:
            config = plan.config
            ensure_artefacts(quiet, config.software, config.driver, config.cards_of_guests)
        else:
            device_library(quiet)
        if options.image == DEBUG:
            archive = debug_archive(Reporter(quiet=options.quiet))
            plan = replace(plan, archives=(archive,))
        for old in ended(set()):
            forget_end(old.number)
        records = launch(
            options.pairs,
            lambda number: _for_pair(plan, number, options),
            Reporter(quiet=options.quiet),
        )
        for record in records:
            _describe(record, time.monotonic() - begin)
        _explain(records[0])
    return 0


def _plan(options: argparse.Namespace) -> Plan:
    """Return the plan that the options ask for. Raises `UsageError` for impossible ones."""
    if options.pairs < 1:
        raise UsageError(f"--pairs {options.pairs} asks for nothing", "give 1 or more")
    fewest, most = LIMITS["cpus"]
    if not fewest <= options.cpus <= most:
        raise UsageError(f"a guest has no {options.cpus} CPUs", f"give --cpus {fewest} to {most}")
    least, _ = LIMITS["memory_mib"]
    if not least <= options.memory_mib <= _host_mib():
        raise UsageError(
            f"a guest cannot have {options.memory_mib} MiB",
            f"give --memory {least} to {_host_mib()}, what this machine has",
        )
    _check_room(options.pairs, options.guests - len(options.host or ()), options.memory_mib)
    check_together(options)
    config = LabConfig(
        **lab_options.fields(options),
        vfio=options.driver == "guest",
        kernel=options.driver == "kernel",
        cold=options.cold,
        hca=options.hca or not (options.bare or options.ntb),
        hcas=options.hcas,
        rxe=options.rxe or "",
        rtrs=options.rtrs,
        bridge=bridge(options),
        options=hardware(options),
        server_words=tuple(options.words),
        stop_on=options.stop_on or "",
        software=lab_options.software(options),
        hosts="".join(name[0] for name in options.host or ()),
    )
    modules: tuple[Path, ...] = ()
    if options.module:
        from bluebridge.host_tools.keeper.modules import check

        modules = check(options.module)
    return Plan(config, modules, verbose=options.verbose)


def _host_mib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20


def _check_room(pairs: int, guests: int, memory_mib: int) -> None:
    """Raises `UsageError` for pairs that this machine's memory cannot hold even when idle.

    What is available is not all that there is, so the first pair is always allowed.
    """
    each = _SERVER_MIB + guests * min(memory_mib, _IDLE_GUEST_MIB)
    most = max(1, _available_mib() // each)
    if pairs > most:
        raise UsageError(
            f"{pairs} pairs take {pairs * each / 1024:,.0f} GiB of memory even when idle, "
            f"{_available_mib() / 1024:.0f} GiB are available",
            f"give --pairs {most} or fewer",
        )


def _available_mib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) >> 10


def _for_pair(plan: Plan, number: int, options: argparse.Namespace) -> Plan:
    """The plan of one pair; several pairs get a folder each in a log folder that was chosen.

    Raises `UsageError` when a host's name is not one of this pair.
    """
    names = guest_names(number, options.guests)
    for host in options.host or () if options.pairs == 1 else ():
        if host not in names:
            mend = f"write --host {host[0]}{names[0][1:]}, or `bluebridge down` first"
            raise UsageError(f"--host {host}: the next pair is {listed(names)}", mend)
    config = replace(plan.config, names=names, number=number)
    if config.log is not None and options.pairs > 1:
        config = replace(config, log=config.log / f"pair{number}")
    return replace(plan, config=config)


def _describe(record: PairRecord, seconds: float) -> None:
    print(f"pair {record.number} is up after {seconds:.1f} s: {record.sides}, {_devices(record)}")
    print(f"  bus log and transcripts: {record.logs}")
    for warning in record.warnings:
        print(f"  note: {warning}")


def _devices(record: PairRecord) -> str:
    found = [", ".join(guest.devices) or "no device" for guest in record.guests]
    if len(set(found)) == 1:
        return f"{found[0]} in each"
    named = zip(found, record.names(), strict=True)
    return ", ".join(f"{devices} in {name}" for devices, name in named)


def _explain(record: PairRecord) -> None:
    commands: list[tuple[str, str]] = []
    guests = [guest.name for guest in record.guests if not guest.functions]
    hosts = [guest.name for guest in record.guests if guest.functions]
    for name in guests[:1]:
        commands += [
            (f"bluebridge run {name} -- lspci -vv", f"a command in guest {name}"),
            (f"bluebridge cp FILE {name}:/tmp/", "files to and from it"),
            (f"bluebridge console {name}", "its console; Ctrl-] leaves it"),
        ]
    for name in hosts:
        commands.append((f"bluebridge python {name}", f"a prompt as host {name}, its HCA open"))
    commands.append(("bluebridge ps · bluebridge down", "what runs; the end of it"))
    for command, purpose in commands:
        print(f"  {command:<35} {purpose}", flush=True)
