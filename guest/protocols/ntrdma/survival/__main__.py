"""`python3 -m bluebridge.guest.protocols.ntrdma.survival`, on the bridge of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END
from bluebridge.guest.protocols.ntrdma.open import open_ntrdma
from bluebridge.guest.protocols.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.protocols.ntrdma.survival.program import main


def _open(watchers: Sequence[Callable[[PortState], None]], back_end: str) -> NtrdmaDevice:
    return open_ntrdma(back_end or BACK_END, False, watchers=watchers)


if __name__ == "__main__":
    sys.exit(main(_open))
