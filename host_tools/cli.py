"""The command `bluebridge`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from bluebridge.host_tools.arguments import parse
from bluebridge.host_tools.errors import LabError, of_system
from bluebridge.host_tools.progress import Reporter

_MODULES = {
    "kmod": "bluebridge.host_tools.commands.kmod",
    "up": "bluebridge.host_tools.commands.up",
    "run": "bluebridge.host_tools.commands.run",
    "cp": "bluebridge.host_tools.commands.copy",
    "console": "bluebridge.host_tools.commands.console",
    "ps": "bluebridge.host_tools.commands.ps",
    "restart": "bluebridge.host_tools.commands.restart",
    "link": "bluebridge.host_tools.commands.hardware",
    "fault": "bluebridge.host_tools.commands.hardware",
    "down": "bluebridge.host_tools.commands.down",
    "watch": "bluebridge.host_tools.watch.command",
    "sweep": "bluebridge.host_tools.sweep.command",
    "mmiotrace": "bluebridge.host_tools.mmiotrace.command",
    "ntb": "bluebridge.host_tools.ntb_demo.command",
}
"""Where the `main` of a command is."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    0: done. 1: it failed, one line on standard error says what and how to mend it. 2: the command
    line or a krping string is wrong. 130: stopped with Ctrl-C.
    """
    _open_standard_streams()
    options = parse(sys.argv[1:] if argv is None else argv)
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
        return _say(of_system(error))


def _open_standard_streams() -> None:
    """Put /dev/null where our caller closed a stream (`<&-`), lest a socket get its number."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (open as long as we are)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _say(error: LabError) -> int:
    if error.transcript and error.aloud:
        print(error.transcript.rstrip(), file=sys.stderr)
    print(f"bluebridge: {error}", file=sys.stderr)
    return error.status


def _run(options: argparse.Namespace) -> int:
    """Import the command's module, and only that, and run it."""
    if options.command == "log":
        from bluebridge.device.buslog import cli as buslog

        return buslog.main(options)
    if options.command == "model":
        from bluebridge.device.buslog.model import cli as model

        return model.main(options)
    if options.command == "krping":
        from bluebridge.host_tools.krping.command import krping

        return krping(options, Reporter(quiet=options.quiet))
    if options.command == "doctor":
        from bluebridge.images.doctor import main as doctor

        return doctor()
    module = import_module(_MODULES[options.command])
    return int(module.main(options))


if __name__ == "__main__":
    sys.exit(main())
