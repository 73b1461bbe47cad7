"""`python3 -m bluebridge.guest.protocols.krping`: run one krping command in this process."""

from __future__ import annotations

import argparse
import ipaddress
import json
import signal
import sys

from bluebridge.guest.bus.machine import open_bus
from bluebridge.guest.connections import PREFIX_LENGTHS
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.protocols.krping.host import Host, Result, host_of, on_signals, open_hca
from bluebridge.guest.protocols.krping.option_string import (
    OptionError,
    Options,
    next_address,
    parse,
)
from bluebridge.guest.protocols.krping.progress import Log
from bluebridge.guest.providers import BLUEFLAME_USES, HCA, add_provider_options, open_chosen

USAGE_STATUS = 2
INTERRUPTED_STATUS = 128 + signal.SIGINT
"""The exit status that shells give for a program that Ctrl-C ended."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns 0 when every iteration was made and right, 1 if not.

    A wrong command gives 2. A run with `count` that is interrupted before its last iteration gives
    130.
    """
    given = _parser().parse_args(arguments)
    try:
        options = parse(given.command)
        ip = own_address(options, given.ip)
    except OptionError as error:
        return _refuse(str(error), given.json, USAGE_STATUS)
    try:
        log = Log(path=given.log, debugging=given.debug)
        host = _open(given, ip, log, not options.server)
    except (OSError, DeviceError, MemoryError) as error:
        what = "HCA" if given.provider == HCA else given.provider
        return _refuse(f"cannot open the {what}: {error}", given.json, 1)
    try:
        # Ctrl-C and SIGTERM end the run as they end a write to /proc/krping.
        result = host.run(given.command, lambda thread: on_signals(thread.cancel))
    finally:
        host.close()
        log.close()
    _print(result, given.json)
    return exit_status(result)


def _open(given: argparse.Namespace, ip: str, log: Log, wait: bool) -> Host:
    """Open the chosen provider with the address `ip`; NTRDMA may wait for its peer."""
    ethernet = f"{ip}/{PREFIX_LENGTHS[ipaddress.ip_address(ip).version]}" if given.ethernet else ""
    device = open_chosen(given, lambda: open_hca(open_bus(), given.blueflame), wait, ethernet)
    return host_of(device, ip, log, given.hca_port)


def exit_status(result: Result) -> int:
    """Return 0 for success, 1 for failure, 130 for a run interrupted before it was complete."""
    if result.ok:
        return 0
    return INTERRUPTED_STATUS if result.cancelled else 1


def own_address(options: Options, ip: str | None) -> str:
    """Return the HCA's IP address: `ip`, else the server's own, else the one after the server's."""
    if ip is not None:
        try:
            return str(ipaddress.ip_address(ip))
        except ValueError as error:
            raise OptionError(f"--ip {ip} is no IP address") from error
    if options.server:
        if options.addr in ("0.0.0.0", "::"):
            raise OptionError(f"a server on {options.addr} needs its HCA's address: --ip A.B.C.D")
        return options.addr
    return next_address(options.addr)


def _parser() -> argparse.ArgumentParser:
    prog = "python3 -m bluebridge.guest.protocols.krping"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.add_argument("command", help="such as server,addr=192.168.69.127,port=9999,validate")
    parser.add_argument("--ip", help="this HCA's address (default: from addr)")
    parser.add_argument("--hca-port", type=int, default=1, metavar="N", help="of two (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--log", help="append the log lines to this file, too")
    parser.add_argument("--debug", action="store_true", help="log every step of every iteration")
    parser.add_argument(
        "--blueflame",
        choices=BLUEFLAME_USES,
        default="off",
        help="send what BlueFlame is for through it, rightly (on) or with a mistake (default off)",
    )
    add_provider_options(parser)
    parser.add_argument(
        "--ethernet",
        action="store_true",
        help="ntrdma: with a network interface, ntrdma0, which has this side's address",
    )
    return parser


def _print(result: Result, as_json: bool) -> None:
    print(result.stats_line)
    print(result.error or result.summary)
    if as_json:
        print(json.dumps(result.as_json()), flush=True)


def _refuse(reason: str, as_json: bool, status: int) -> int:
    """Report why nothing ran, and return the exit status `status`."""
    print(f"krping: {reason}", file=sys.stderr, flush=True)
    if as_json:
        print(json.dumps(Result(False, 0, 0, None, {}, error=reason).as_json()), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
