"""The PCI functions of a side without a guest, at the addresses that they would have in one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from bluebridge.guest.bus.machine import MODULE

_MACHINE = "bluebridge.host_tools.hosts.machine"
_SIDE = "BLUEBRIDGE_SIDE"
"""The variable with the name of a program's side, and the words of its functions."""
HCA, ENGINE, BRIDGE = "hca", "dma", "ntb"


class HostFunction(NamedTuple):
    """A function of a side: its PCI address, `HCA`, `ENGINE` or `BRIDGE`, and its socket."""

    address: str
    kind: str
    socket: Path

    @property
    def word(self) -> str:
        """The function as one word of a command line."""
        return f"{self.address},{self.kind},{self.socket}"

    @classmethod
    def parse(cls, word: str) -> Self:
        """Return the function that has this `word`."""
        address, kind, socket = word.split(",", 2)
        return cls(address, kind, Path(socket))


def environment(name: str, functions: Sequence[HostFunction]) -> dict[str, str]:
    """Return the variables with which a Python program finds the functions of side `name`."""
    return {MODULE: _MACHINE, _SIDE: json.dumps([name, *(each.word for each in functions)])}


def played(variables: Mapping[str, str]) -> tuple[str, list[HostFunction]]:
    """Return the side and the functions that `environment` has put into `variables`."""
    name, *words = json.loads(variables[_SIDE])
    return name, [HostFunction.parse(word) for word in words]
