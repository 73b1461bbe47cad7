"""Block devices over RTRS.

Words behind `python3 -m bluebridge.guest.protocols.rnbd`:

    server --interface 10.9.0.1/24 --export disk=ram:256M
    client --interface 10.9.0.2/24 --session s --device disk --path 10.9.0.2@10.9.0.1
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence

from bluebridge.guest.protocols.rnbd.programs import ClientProgram, ServerProgram, accesses
from bluebridge.guest.protocols.rtrs.files.served import add_file_commands
from bluebridge.guest.protocols.rtrs.program import (
    add_client_options,
    add_interface_options,
    add_server_options,
    run_program,
)
from bluebridge.guest.protocols.rtrs.transport.interfaces import AddressError, Interfaces
from bluebridge.guest.protocols.rtrs.transport.loop import Loop


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 1 for a session or a device that failed, 2 for a wrong call."""
    return run_program("rnbd", _parser().parse_args(arguments))


def _serve(given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> int:
    if given.address:
        interfaces = _only(interfaces, given.address.split(","))
    return ServerProgram(given, interfaces, loop).run()


def _only(interfaces: Interfaces, addresses: Sequence[str]) -> Interfaces:
    """Return the interfaces with `addresses`; raises `AddressError` for one that nobody has."""
    ours = {interface.address: interface for interface in interfaces.all}
    for address in addresses:
        if address not in ours:
            raise AddressError(f"{address} is no address of --interface, but {', '.join(ours)}")
    return Interfaces([ours[address] for address in addresses])


def _client(given: argparse.Namespace, interfaces: Interfaces, loop: Loop) -> int:
    return ClientProgram(given, interfaces, loop).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m bluebridge.guest.protocols.rnbd",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    server = commands.add_parser("server", help="export files and RAM disks until a signal comes")
    add_interface_options(server)
    add_server_options(server)
    server.add_argument(
        "--address",
        metavar="IP[,IP...]",
        help="listen on these addresses only (default: on all of --interface)",
    )
    server.add_argument(
        "--export",
        action="append",
        required=True,
        metavar="NAME=FILE|NAME=ram:SIZE",
        help="a file, a block device, or memory such as ram:256M; may be repeated",
    )
    server.set_defaults(run=_serve)
    client = commands.add_parser("client", help="map devices until a signal comes")
    add_interface_options(client)
    add_client_options(client)
    client.add_argument("--device", action="append", required=True, help="may be repeated")
    client.add_argument("--access", choices=tuple(accesses()), default="rw", help="default rw")
    client.set_defaults(run=_client)
    add_file_commands(commands)
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    raise SystemExit(main())
