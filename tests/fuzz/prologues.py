"""What the guests of an input have done before its own steps: files of steps, by number.

An input of steps starts with the number of such a file, then two bytes that say what the functions
are. `tests.fuzz.record` writes the files, and what guests do in them is in `tests.fuzz.record`.
Numbers stay what they are: corpora name them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("prologues")
MOST = 16
"""Numbers there are; one without a file, such as 0, is the cold start."""
HEADER = 2
NAMES: dict[str, dict[int, str]] = {
    "hca": {
        1: "roce_nodes",
        2: "roce_connected",
        3: "started",
        4: "infiniband",
        5: "ethernet_frames",
        6: "infiniband_unmanaged",
    },
    "ntb": {1: "gen4_up", 2: "gen1_up", 3: "switchtec_up"},
}


@cache
def prologue(target: str, number: int) -> bytes:
    """Its steps, none for the cold start."""
    name = NAMES[target].get(number % MOST)
    return (FOLDER / target / name).read_bytes() if name else b""


def parts(target: str, data: bytes) -> tuple[bytes, bytes]:
    """Header and all steps of an input."""
    header = data[1 : 1 + HEADER].ljust(HEADER, b"\0")
    return header, (prologue(target, data[0]) if data else b"") + data[1 + HEADER :]
