"""A network interface over NTRDMA, until a signal.

`python3 -m bluebridge.guest.ntrdma ethernet`
"""

from __future__ import annotations

import argparse
import ipaddress
import signal
import sys

from bluebridge.guest.errors import DeviceError
from bluebridge.guest.ntrdma.back_ends import BACK_END, HELP
from bluebridge.guest.ntrdma.interface import DEFAULT_MTU, DEFAULT_NAME, EthernetOptions, parse_mtu
from bluebridge.guest.ntrdma.open import open_ntrdma

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def main(arguments: list[str] | None = None) -> int:
    """Run until a signal; returns 0 then, 1 when there is no device or it has gone."""
    given = _parser().parse_args(arguments)
    options = EthernetOptions(given.address, given.mtu, given.name)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        with open_ntrdma(given.backend, False, options) as device:
            print(f"{options.name}: {options.address}, MTU {options.mtu}", flush=True)
            while signal.sigtimedwait(_SIGNALS, 1.0) is None:
                device.health.check()
            if device.network is not None:
                print(device.network.counters(), flush=True)
    except (DeviceError, OSError, MemoryError) as error:
        print(f"ntrdma: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m bluebridge.guest.ntrdma", description="What NTRDMA has besides verbs."
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    ethernet = actions.add_parser(
        "ethernet",
        help="a network interface",
        description="Make a network interface whose frames go to the peer's, until SIGINT or "
        "SIGTERM; its counters are the last line. It has a carrier while the peer is there.",
    )
    ethernet.add_argument("--address", type=_address, required=True, help="such as 10.9.2.1/24")
    ethernet.add_argument(
        "--mtu", type=parse_mtu, default=DEFAULT_MTU, help=f"default {DEFAULT_MTU}"
    )
    ethernet.add_argument("--name", default=DEFAULT_NAME, help=f"default {DEFAULT_NAME}")
    ethernet.add_argument("--backend", default=BACK_END, help=HELP)
    return parser


def _address(text: str) -> str:
    return str(ipaddress.ip_interface(text))


if __name__ == "__main__":
    sys.exit(main())
