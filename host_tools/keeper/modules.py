"""Users' kernel modules: checked on the host, copied into a guest and loaded there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bluebridge.host_tools.errors import CommandFailed, LabError, UsageError
from bluebridge.host_tools.machine.vm import Vm
from bluebridge.images.kmod import modinfo

_LOAD_SECONDS = 120.0
_ELF = b"\x7fELF"


def check(modules: Sequence[Path]) -> tuple[Path, ...]:
    """Return the modules' absolute paths. Raises `UsageError` for files that are no modules."""
    for path in modules:
        try:
            with path.open("rb") as stream:
                head = stream.read(len(_ELF))
        except OSError as error:
            raise UsageError(
                f"module {path}: {error.strerror}", "`bluebridge kmod DIR` builds modules"
            ) from None
        if head != _ELF:
            raise UsageError(f"module {path} is no kernel module", "give the .ko file itself")
    return tuple(path.resolve() for path in modules)


def load(machine: Vm, modules: Sequence[Path]) -> None:
    """Copy modules into a guest and load them in their order, with their dependencies.

    Raises `LabError` with the kernel's reason.
    """
    try:
        ours = {_name(path) for path in modules}
        for path in modules:
            target = machine.agent.put(path, f"/tmp/{path.name}")
            for needed in filter(None, modinfo(path)["depends"].split(",")):
                if needed.replace("-", "_") not in ours:
                    _load_needed(machine, path, needed)
            _load(machine, path, target)
    except OSError as error:
        raise LabError(f"module {error.filename}: {error.strerror}", "build it again") from None


def _name(path: Path) -> str:
    return modinfo(path, ("name",))["name"].replace("-", "_")


def _load_needed(machine: Vm, path: Path, needed: str) -> None:
    try:
        machine.run(["modprobe", needed], timeout=_LOAD_SECONDS)
    except CommandFailed as error:
        raise LabError(
            f"guest {machine.name}: {path.name} needs the module {needed}, which does not load",
            "give it as well, before this one, with --module",
            error.output,
        ) from None


def _load(machine: Vm, path: Path, target: str) -> None:
    try:
        machine.run(["insmod", target], timeout=_LOAD_SECONDS)
    except CommandFailed as error:
        said = error.output.strip().splitlines()
        reason = _kernel_reason(machine, path) or (said[-1] if said else "no reason given")
        raise LabError(
            f"guest {machine.name}: {path.name} does not load: {reason}",
            "build it with `bluebridge kmod`" if "magic" in reason else "",
            error.output,
        ) from None


def _kernel_reason(machine: Vm, path: Path) -> str:
    """Return the last line that the kernel logged about the module, empty if there is none."""
    log = machine.run("dmesg", check=False).text
    about = re.findall(rf"^\[[^]]*\] ({re.escape(_name(path))}: .*)$", log, re.MULTILINE)
    # That a module is unsigned taints the kernel and stops nothing.
    told = [line for line in about if "taint" not in line]
    return str(told[-1]) if told else ""
