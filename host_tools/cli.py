"""The command `bluebridge`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from device.buslog import cli as buslog
from host_tools import kmod_cli
from host_tools.errors import LabError
from host_tools.progress import Reporter

_EPILOG = """\
examples:
  bluebridge krping "server,addr=192.168.69.127,port=9999" \\
                    "client,addr=192.168.69.127,port=9999,count=100,validate"
  bluebridge log ~/.local/state/bluebridge/run-... --kind mmio,dma,irq --decode
  bluebridge doctor
"""


_MENDS = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some of your quota there",
    errno.ENOMEM: "free some memory, or give the guests less with --memory",
    errno.EACCES: "choose a place you may write to",
    errno.EPERM: "choose a place you may write to",
    errno.EROFS: "choose a place that can be written to",
    errno.EEXIST: "choose another name",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0: done. 1: it failed, one line on standard error says what and how to mend it. 2: the command
    line or a krping string is wrong. 130: stopped with Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    words, make_arguments = kmod_cli.split(words)
    options = _parser().parse_args(words)
    options.make_arguments = make_arguments
    try:
        return _run(options)
    except LabError as error:
        return _say(error)
    except KeyboardInterrupt:
        print("bluebridge: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        mend = _MENDS.get(error.errno or 0, "look at that path and at its rights")
        print(f"bluebridge: {error.strerror or error}{where}; {mend}", file=sys.stderr)
        return 1


def _say(error: LabError) -> int:
    if error.transcript and error.aloud:
        print(error.transcript.rstrip(), file=sys.stderr)
    print(f"bluebridge: {error}", file=sys.stderr)
    return error.status


def _run(options: argparse.Namespace) -> int:
    if options.command == "log":
        return buslog.main(options)
    if options.command == "kmod":
        return kmod_cli.main(options)
    progress = Reporter(quiet=getattr(options, "quiet", False))
    if options.command == "krping":
        from host_tools.krping import krping

        return krping(options, progress)
    if options.command == "up":
        from host_tools.lab import LabConfig
        from host_tools.up import up

        config = LabConfig(log=options.log, sockets=options.sockets, vfio=not options.no_vfio)
        return up(config, progress)
    from images.doctor import main as doctor

    return doctor()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bluebridge",
        description="A virtual PCIe lab: an emulated ConnectX-3 in each of two QEMU guests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_krping(commands)
    _add_up(commands)
    buslog.add_arguments(commands.add_parser("log", help="show what crossed the bus"))
    kmod_cli.add_arguments(commands.add_parser("kmod", help="build a module for the guest kernel"))
    commands.add_parser("doctor", help="what this machine has, what is missing, what mends it")
    return parser


def _add_krping(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "krping",
        help="boot two guests and run krping between them",
        description="Boot two guests, run krping between their HCAs, show statistics, times and "
        "the bus log of the last iteration. addr belongs to the server guest's HCA; the client "
        "gets the next address of the same /24. Exit status 0 only if every iteration was "
        "validated on both sides.",
    )
    parser.add_argument("server", help='krping string of the server, "server,addr=...,port=..."')
    parser.add_argument("client", help='krping string of the client, "client,addr=...,count=..."')
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of a guest (default 2)")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="default 1024")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="give up on krping after this time (default: 120 s and 0.5 s per iteration; "
        "never without count)",
    )
    _add_common(parser)


def _add_up(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "up",
        help="boot the pair and keep it, with a console to each guest",
        description="Boot two guests with an HCA each and stay up. Type a or b for a console "
        "(Ctrl-] leaves it), quit or Ctrl-C to end.",
    )
    parser.add_argument(
        "--cold", action="store_true", required=True, help="boot from power-on (the only way yet)"
    )
    parser.add_argument(
        "--no-vfio",
        action="store_true",
        help="leave the HCAs without a driver, for `modprobe mlx4_core` in the guests",
    )
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    parser.add_argument(
        "--sockets", type=Path, metavar="DIR", help="folder for the HCAs' vfio-user sockets"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


if __name__ == "__main__":
    sys.exit(main())
