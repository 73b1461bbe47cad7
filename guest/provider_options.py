"""The options `--provider` and `--backend`, by which programs choose the device they open."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bluebridge.guest.protocols.ntrdma.back_ends import BACK_END, HELP
from bluebridge.guest.providers import HCA, PROVIDERS, open_ntrdma
from bluebridge.guest.verbs import Device


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
