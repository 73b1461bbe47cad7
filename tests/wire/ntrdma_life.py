"""One life of a side of NTRDMA as a process of its own, so that it can be killed.

    python -m tests.wire.ntrdma_life FOLDER NAME ROLE [--ends STATE:HOW ...]

The sockets of bridge and engine are in FOLDER, the rest in
`tests/campaigns/survival/in_guest.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from tests.campaigns.survival.in_guest import main
from tests.wire import ntrdma_pair


def run(folder: Path, name: str, words: list[str]) -> int:
    """The program's exit status."""
    with ExitStack() as owned:

        def opener(watchers: Sequence[Callable[[PortState], None]], back_end: str) -> NtrdmaDevice:
            dma = back_end != "ntb+cpu"
            return owned.enter_context(ntrdma_pair.opened(folder, name, dma, watchers))

        return main(opener, words)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
