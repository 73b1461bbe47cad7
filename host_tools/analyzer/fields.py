"""The names that fields and their values have in lines of a log, and which of them there are."""

from __future__ import annotations

from functools import cache
from typing import Final

from bluebridge.device.layout import ibverbs
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.fields import RegisterBlock
from bluebridge.device.layout.net.roce import BthOpcode, Syndrome
from bluebridge.device.layout.reference import tables
from bluebridge.host_tools.analyzer.decode import REGISTERS
from bluebridge.host_tools.analyzer.devices.model import GENERAL_ERROR, Adapter
from bluebridge.host_tools.analyzer.devices.registry import MODELS
from bluebridge.host_tools.analyzer.transaction import OK

IN_WORDS: Final = (
    "address", "av", "block", "bytes", "channel", "chunk", "count", "cqn", "descriptor", "device",
    "dmac", "dqpn", "eqn", "errno", "first", "hash", "headers", "imm", "immediate", "inline",
    "input", "inv_rkey", "iova", "key", "len", "length", "lkey", "max_io_size", "metadata", "mss",
    "octowords", "output", "part", "path", "payload", "pgshift", "pieces", "psn", "qkey", "qpn",
    "queue_depth", "raddr", "receive", "recon", "repeats", "rkey", "rqn", "sector", "sectors",
    "sequence", "session", "sge", "sqn", "srqn", "stride", "swap_add", "tid", "timer", "user",
    "vendor_err", "version", "vlan", "wqe",
)  # fmt: skip
"""The fields that decoders write into lines by a name of their own, not by a table's."""
_TABLES: Final = (
    "ib",
    "ioat",
    "mlx4.bar0",
    "mlx4.eqe",
    "mlx4.uar",
    "mlx5.cqe",
    "mlx5.event_queues",
    "mlx5.init_segment",
    "net",
    "ntb",
    "ntrdma",
    "pci",
    "pcie",
)
"""Modules of `device/layout` whose fields stand in lines by their names."""


@cache
def of_tables() -> frozenset[str]:
    """Return the fields that lines have by the names in tables: of registers, events, packets."""
    found = {part.name for register in REGISTERS for part in register.fields}
    found |= {name for fact in Fact for name in fact.fields}
    for module, _, own in tables():
        if not module.startswith(_TABLES):
            continue
        for table in own:
            if isinstance(table, RegisterBlock):
                for register in table.registers:
                    found |= {register.name, *register.fields}
            else:
                found |= {item.name for item in table.fields}
    return frozenset(found)


def adapters() -> list[Adapter]:
    """Return the forms of the queues of all models of adapters."""
    return [model.adapter for model in MODELS.values() if model.adapter is not None]


@cache
def statuses() -> frozenset[str]:
    """Return the statuses of commands and completions, without the prefix of verbs."""
    found = {OK, "SUCCESS", GENERAL_ERROR}
    for adapter in adapters():
        found |= {*adapter.command.statuses}
        found |= {name for names in adapter.statuses.values() for name in names}
    return frozenset(found)


@cache
def _status_names() -> dict[str, str]:
    rows = [names for adapter in adapters() for names in adapter.statuses.values()]
    return {name: names[0] for names in rows for name in names} | {"SUCCESS": OK}


def status(name: str) -> str:
    """Return the name under which work requests have a status, by any of its names."""
    name = ibverbs.bare(name)
    return _status_names().get(name, name)


@cache
def syndromes() -> frozenset[str]:
    """Return the names of syndromes of answers and of completions in error."""
    names = {name for each in adapters() for found in each.statuses.values() for name in found}
    return frozenset({*Syndrome.__members__, GENERAL_ERROR, *names})


@cache
def opcodes() -> frozenset[str]:
    """Return the names of operations, of packets and of firmware commands."""
    found = {*ibverbs.OPERATIONS, *(name for row in ibverbs.OPERATIONS.values() for name in row)}
    for code in BthOpcode:
        found |= {code.name, code.name.partition("_")[2] or code.name}
    for adapter in adapters():
        found |= {*adapter.command.names}
    return frozenset(found)


def spellings(name: str) -> list[str]:
    """Return the names under which an operation is found: its own, and its short one."""
    return list(dict.fromkeys((name, ibverbs.operation(name))))
