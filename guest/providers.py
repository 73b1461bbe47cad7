"""The choice of the driver that provides verbs, by a PCI function's identity or by name.

Programs choose by `--provider` and `--backend`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bluebridge.device.layout.pci import CONNECTX5_IDS, HCA_IDS
from bluebridge.guest.bus.interface import Bus
from bluebridge.guest.drivers.common.blueflame import USES, use_of
from bluebridge.guest.drivers.common.vectors import DEFAULT_VECTORS
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma.back_ends import BACK_END, HELP
from bluebridge.guest.verbs import Device, DeviceLost

GONE = 0xFFFF, 0xFFFF
BLUEFLAME_USES = USES
"""The words for `open_device`'s `blueflame`: how an adapter sends through BlueFlame."""
HCA, NTRDMA = "hca", "ntrdma"
PROVIDERS = (HCA, NTRDMA)
"""The words for `--provider` of programs."""


def open_device(bus: Bus, *, vectors: int = DEFAULT_VECTORS, blueflame: str = "off") -> Device:
    """Take the function behind `bus` over and bring it up.

    `vectors` bounds the completion channels to one less; `blueflame` is one of `BLUEFLAME_USES`,
    of which a ConnectX-5 does not have "wrong-page". Raises `DeviceError` when no provider fits,
    `VerbsError`, `ValueError` for another word.
    """
    identity = bus.load_config(0, 2), bus.load_config(2, 2)
    if identity == GONE:
        raise DeviceLost("the device is gone (reads return all ones)")
    if identity in CONNECTX5_IDS:
        use = use_of(blueflame)
        if use is not None and use.wrong_page:
            raise DeviceError("a ConnectX-5 has no page that all share: choose on, off or old-size")
        from bluebridge.guest.drivers.mlx5.context import open_mlx5

        return open_mlx5(bus, vectors=vectors, blueflame=use)
    if identity not in HCA_IDS:
        raise DeviceError(f"{identity[0]:04x}:{identity[1]:04x} has no driver with verbs here")
    from bluebridge.guest.drivers.hca.context import open_hca  # late: start-up is slow

    return open_hca(bus, vectors=vectors, blueflame=use_of(blueflame))


def open_ntrdma(back_end: str = BACK_END, wait: bool = True, ethernet: str = "") -> Device:
    """Open NTRDMA by this machine's bridge or TCP, with its peer there if it waits.

    `back_end` is one of the words of `guest.ntrdma.back_ends`. With `ethernet`, such as
    10.9.2.1/24, it has a network interface of that address, ntrdma0. Raises `DeviceError`,
    `OSError`, `ValueError` for an address that is none. Imported when it is chosen: start-up in a
    guest is slow.
    """
    from bluebridge.guest.ntrdma.interface import EthernetOptions
    from bluebridge.guest.ntrdma.open import open_ntrdma

    return open_ntrdma(back_end, wait, EthernetOptions(ethernet) if ethernet else None)


def add_provider_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose a provider of verbs."""
    parser.add_argument(
        "--provider", choices=PROVIDERS, default=HCA, help=f"of verbs (default {HCA})"
    )
    parser.add_argument("--backend", default=BACK_END, help=f"of ntrdma: {HELP}")


def open_chosen(
    given: argparse.Namespace, open_hca: Callable[[], Device], wait: bool = True, ethernet: str = ""
) -> Device:
    """Open the device that was chosen; raises `DeviceError`, `OSError`.

    NTRDMA may wait for its peer, and have a network interface of the address `ethernet`.
    """
    return open_hca() if given.provider == HCA else open_ntrdma(given.backend, wait, ethernet)
