"""The PCI functions of a side without a guest, at the addresses that they would have in one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

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
