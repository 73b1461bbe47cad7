"""libibverbs' examples: one queue pair, 1000 messages there and back."""

from __future__ import annotations

from bluebridge.host_tools.campaigns.conformance.program import Program
from bluebridge.host_tools.campaigns.conformance.setups import (
    BLUEFLAME,
    INFINIBAND,
    OPENSM,
    ROCE,
    ROCE_V2,
)
from bluebridge.host_tools.programs.perftest import VERBS_PORT, listening

KINDS = ("rc", "uc", "ud", "srq")
OPTIONS = {"": "", "-e": "completion events", "-c": "contents checked"}
_QUICK = {"rc": "-e", "uc": "-c", "ud": "", "srq": "-e"}
"""The option with which the short run has each kind; the others are in tests/vm/test_infiniband."""


def programs() -> list[Program]:
    """Each kind plain, with events, with checked contents."""
    found = []
    for kind in KINDS:
        for option in OPTIONS:
            command = f"ibv_{kind}_pingpong {{g}} {option}".strip()
            found.append(
                Program(
                    "pingpong",
                    f"ibv_{kind}_pingpong {option}".strip(),
                    server=command,
                    ready=listening(VERBS_PORT),
                    client=f"{command} {{server}}",
                    expect=r"1000 iters in .* seconds",
                    setups=(ROCE, INFINIBAND, BLUEFLAME, ROCE_V2, OPENSM),
                    short=option == _QUICK[kind],
                )
            )
    return found
