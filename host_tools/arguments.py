"""The command line of `bluebridge`: its commands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bluebridge.device.buslog import cli as buslog
from bluebridge.device.buslog.model import cli as model
from bluebridge.device.layout.ntb.models import BY_NAME
from bluebridge.host_tools.commands import kmod
from bluebridge.host_tools.mmiotrace import options as mmiotrace
from bluebridge.host_tools.ntb_demo import options as ntb_demo
from bluebridge.host_tools.sweep import options as sweep
from bluebridge.host_tools.watch import options as watch

_EPILOG = """\
examples:
  bluebridge up                                 two guests with an HCA each, until `down`
  bluebridge run a -- lspci -vv                 a command in guest a
  bluebridge cp results.txt a:/tmp/             files to a guest, and from it
  bluebridge console b                          the serial console, Ctrl-] leaves it
  bluebridge link a down                        pull the cable; `up` plugs it in again
  bluebridge krping "server,addr=192.168.69.127,port=9999" \\
                    "client,addr=192.168.69.127,port=9999,count=100,validate"
  bluebridge log ~/.local/state/bluebridge/run-... --kind mmio,dma,irq --decode
  bluebridge watch                              what crosses the bus right now
  bluebridge doctor
"""
_RUN_USAGE = "bluebridge run [-h] [--timeout SECONDS] GUEST -- COMMAND [ARGUMENT ...]"
_VALUED = ("--timeout",)
"""Options of `run` that take a value."""

MODELS = tuple(BY_NAME)
"""Bridges that --ntb knows, the default first."""

_Commands = argparse._SubParsersAction  # its name in argparse; there is no public one


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ends the program with status 2 when it is wrong."""
    rest, make_arguments = kmod.split(words)
    rest, command_words = split_words(rest)
    options = _parser().parse_args(rest)
    options.make_arguments = make_arguments
    options.words = command_words
    return options


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those that are passed on.

    Of `up` that is what follows `--`. Of `run` it is the command: what follows `--`, or the guest's
    name and our own options.
    """
    words = list(words)
    if words[:1] == ["up"] and "--" in words:
        return words[: words.index("--")], words[words.index("--") + 1 :]
    if words[:1] != ["run"]:
        return words, []
    named = False
    position = 1
    while position < len(words):
        word = words[position]
        if word == "--":
            return words[:position], words[position + 1 :]
        if word.startswith("-"):
            position += 1 if word not in _VALUED else 2
            continue
        if named:
            break
        named = True
        position += 1
    return words[:position], words[position:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bluebridge",
        description="A virtual PCIe lab: an emulated ConnectX-3 in each of two QEMU guests.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_up(commands)
    _add_run(commands)
    _add_cp(commands)
    _add_console(commands)
    _add_ps(commands)
    _add_restart(commands)
    _add_hardware(commands)
    _add_down(commands)
    _add_krping(commands)
    buslog.add_arguments(commands.add_parser("log", help="show what crossed the bus"))
    model.add_arguments(
        commands.add_parser("model", help="what a log's sends would take on real machines")
    )
    sweep.add_arguments(
        commands.add_parser("sweep", help="latency against payload, with and without BlueFlame")
    )
    mmiotrace.add_arguments(
        commands.add_parser("mmiotrace", help="hold the guest kernel's own record against the log")
    )
    ntb_demo.add_arguments(
        commands.add_parser("ntb", help="show a bridge between two guests at work"), MODELS
    )
    watch.add_arguments(commands.add_parser("watch", help="show what crosses the bus right now"))
    kmod.add_arguments(commands.add_parser("kmod", help="build a module for the guest kernel"))
    commands.add_parser("doctor", help="what this machine has, what is missing, what mends it")
    return parser


def _add_up(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "up",
        help="start two guests with their devices and keep them",
        usage="bluebridge up [options] [-- ARGUMENT ...]",
        description="Start a pair of guests, a and b, and return when they are ready. They stay "
        "until `bluebridge down`. While a pair runs, another `up` adds a2 and b2, and so on. What "
        "follows -- goes to the device server, as `python -m bluebridge.device --help` lists it.",
    )
    parser.add_argument("--pairs", type=int, default=1, metavar="N", help="how many (default 1)")
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument(
        "--hca", action="store_true", help="an HCA in each guest; so it is without any such option"
    )
    devices.add_argument("--bare", action="store_true", help="guests without any device")
    parser.add_argument(
        "--ntb",
        nargs="?",
        const=MODELS[0],
        default="",
        choices=MODELS,
        metavar="MODEL",
        help="a non-transparent bridge between the guests and a DMA engine in each; add --hca for "
        f"an HCA as well. MODEL is {', '.join(MODELS)} (default {MODELS[0]})",
    )
    parser.add_argument(
        "--bar-sizes",
        choices=("small", "ntrdma"),
        default="small",
        help="the bridge's windows: 1 MiB each (small, default), or 4 GiB for the second (ntrdma)",
    )
    parser.add_argument(
        "--window-alias",
        action="store_true",
        help="the bridge's second window has 4 GiB and is the peer's memory itself, where "
        "processors store at the speed of memory; it never closes",
    )
    parser.add_argument(
        "--cold", action="store_true", help="boot from power-on instead of restoring a snapshot"
    )
    parser.add_argument(
        "--driver",
        choices=("guest", "kernel", "none"),
        default="guest",
        help="who drives the devices: the Python driver through vfio-pci (guest, default), the "
        "kernel's drivers, loaded and with addresses (kernel), nobody yet (none)",
    )
    _add_hardware_options(parser)
    parser.add_argument(
        "--module",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="x.ko",
        help="kernel modules to load in both guests, in this order",
    )
    parser.add_argument("--verbose", action="store_true", help="tell every step on standard error")
    _add_size(parser)
    _add_common(parser)


def _add_hardware_options(parser: argparse.ArgumentParser) -> None:
    """What the device server is told of the HCAs (see `device_arguments`)."""
    hardware = parser.add_argument_group("hardware")
    hardware.add_argument(
        "--link", choices=("ethernet", "infiniband"), help="what the ports speak (default ethernet)"
    )
    hardware.add_argument(
        "--sm",
        choices=("builtin", "none"),
        help="who manages InfiniBand: the switch (builtin, default), or opensm in a guest (none)",
    )
    hardware.add_argument("--ports", choices=("1", "2"), help="ports of each HCA (default 1)")
    hardware.add_argument(
        "--blueflame", choices=("on", "off"), help="advertise BlueFlame (default off)"
    )
    hardware.add_argument(
        "--blueflame-size",
        choices=("128", "256", "512", "1024", "2048", "4096"),
        metavar="BYTES",
        help="of a BlueFlame register, two buffers (default 512)",
    )
    hardware.add_argument("--pro", action="store_true", help="ConnectX-3 Pro: RoCE v2 as well")
    hardware.add_argument(
        "--capture",
        type=_byte_count,
        metavar="BYTES",
        help="what the log keeps of each transfer (default 64), and of each message on the wire "
        "if that is more than it keeps anyway",
    )


def device_arguments(options: argparse.Namespace) -> list[str]:
    """Arguments of `python -m bluebridge.device` for the options of `_add_hardware_options`."""
    words = []
    for name in ("link", "sm", "ports", "blueflame", "blueflame-size", "capture"):
        if (value := getattr(options, name.replace("-", "_"))) is not None:
            words += [f"--{name}", str(value)]
    return [*words, "--pro"] if options.pro else words


def _add_run(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run a command in a guest",
        usage=_RUN_USAGE,
        description="Run a command in a guest with its output, its input (unless that is a "
        "terminal) and its exit status: 128+N if signal N ended it, 124 after the time limit, 127 "
        "for an unknown command, 125 if bluebridge itself failed. One word is a line for the "
        "guest's shell, several are a command and its arguments.",
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument(
        "--timeout", type=_seconds, metavar="SECONDS", help="end the command then (default: never)"
    )


def _add_cp(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "cp",
        help="copy files to, from and between guests",
        description="Copy files. NAME:PATH is in a guest, relative to /root; a file here whose "
        "name has a colon is written ./like:this.",
    )
    parser.add_argument("places", nargs="+", metavar="FILE", help="sources, then the target")
    parser.add_argument("-r", "--recursive", action="store_true", help="folders as well")


def _add_console(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("console", help="the serial console of a guest; Ctrl-] leaves it")
    parser.add_argument("guest", metavar="GUEST")


def _add_ps(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("ps", help="what runs, and what has ended")
    parser.add_argument("--json", action="store_true", help="one JSON object")


def _add_restart(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "restart",
        help="switch a guest off and bring it up anew",
        description="Bring a guest up anew, whether it still runs or has ended. Its devices come "
        "back as after a reset; its peer and the device server go on.",
    )
    parser.add_argument("guest", metavar="GUEST")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _add_hardware(commands: _Commands[argparse.ArgumentParser]) -> None:
    link = commands.add_parser(
        "link",
        help="pull the cable out of a guest's HCA, or plug it in",
        description="Pull the cable of a port, or plug it in again: the guest sees its link go.",
    )
    link.add_argument("guest", metavar="GUEST")
    link.add_argument("state", choices=("up", "down"))
    link.add_argument("--port", type=int, default=1, metavar="N", help="of two (default 1)")
    fault = commands.add_parser(
        "fault",
        help="break a guest's HCA, for its driver to mend",
        description="Inject an internal error: the HCA stops and fills its error buffer. mlx4_core "
        "notices within five seconds, resets the device and starts anew.",
    )
    fault.add_argument("guest", metavar="GUEST")
    fault.add_argument("text", nargs="?", default="", help="what the error buffer says, 60 letters")


def _add_down(commands: _Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("down", help="end pairs, and wait until nothing of them is left")
    parser.add_argument(
        "names", nargs="*", metavar="PAIR", help="its number or one of its guests (default: all)"
    )


def _add_krping(commands: _Commands[argparse.ArgumentParser]) -> None:
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
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="give up on krping after this time (default: 120 s and 0.5 s per iteration; "
        "never without count)",
    )
    _add_size(parser)
    _add_common(parser)


def _add_size(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of a guest (default 2)")
    parser.add_argument("--memory", type=int, default=1024, metavar="MIB", help="default 1024")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log", type=Path, metavar="DIR", help="folder for the bus log")
    parser.add_argument(
        "--sockets", type=Path, metavar="DIR", help="folder for the HCAs' vfio-user sockets"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _byte_count(text: str) -> int:
    """A number of bytes, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text} is no number of bytes, 0 or more")
    return int(text)


def _seconds(text: str) -> float:
    """A time limit: a positive number."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return seconds
