"""The command `bluebridge`: parses the command line, runs a command, reports an error in a line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from bluebridge.host_tools.arguments import parse, run
from bluebridge.host_tools.errors import LabError, of_system
from bluebridge.printable import printable_lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status.

    0: done. 1: it failed, one line on standard error says what and how to mend it. 2: the command
    line or a krping string is wrong. 130: stopped with Ctrl-C.
    """
    _open_standard_streams()
    if "_ARGCOMPLETE" in os.environ:  # the shell asks, in the middle of a line
        import_module("bluebridge.host_tools.completion").answer()
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        return run(options)
    except LabError as error:
        return say(error)
    except KeyboardInterrupt:
        print("bluebridge: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return say(of_system(error))


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that our caller closed (`<&-`).

    Otherwise a socket could get its number.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (open as long as we are)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def say(error: LabError) -> int:
    """Print an error on standard error, with its transcript if that was asked for."""
    if error.transcript and error.aloud:
        from bluebridge.host_tools.lab.stacks import with_lines

        print(with_lines(printable_lines(error.transcript)).rstrip(), file=sys.stderr)
    print(f"bluebridge: {error}", file=sys.stderr)
    return error.status


if __name__ == "__main__":
    sys.exit(main())
