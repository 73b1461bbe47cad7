"""`bluebridge python`: a Python program, or a prompt, as a host of a pair that runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bluebridge.host_tools.errors import LabError, UsageError
from bluebridge.host_tools.hosts.functions import HostFunction, environment
from bluebridge.host_tools.keeper import guests


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command, apart from the program and its words (see `split`)."""
    parser.usage = "bluebridge python [-h] HOST [PROGRAM | -m MODULE | -c CODE] [ARGUMENT ...]"
    parser.description = (
        "Become python3 with the words behind HOST, on this machine, where open_bus() of "
        "bluebridge.guest.bus.machine opens the HCA of a side of `bluebridge up --host`. "
        "What python3 runs in a guest runs here as well. Without words: a prompt at which the HCA "
        "is open, as `hca`."
    )
    parser.add_argument("host", metavar="GUEST", help="the side, such as b")


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words behind the name of the side."""
    words = list(words)
    named = next((n for n, word in enumerate(words, 1) if not word.startswith("-")), len(words))
    return words[:named], words[named:]


def main(options: argparse.Namespace) -> int:
    """Become the program. Raises `LabError` when its card is not to be had."""
    side = guests.find(options.host)
    side.check()
    if not side.record.functions:
        mend = f"`bluebridge run {side.name} -- python3 ...` runs programs there"
        raise UsageError(f"{side.name} is a guest, with a machine of its own", mend)
    for other in side.record.programs():
        mend = f"end it, or `bluebridge restart {side.name}`"
        raise LabError(f"the card of {side.name} is held by {other}", mend)
    functions = [HostFunction.parse(word) for word in side.record.functions]
    words = options.words or ["-i", "-m", "bluebridge.host_tools.hosts.prompt"]
    os.execve(
        sys.executable,
        [sys.executable, *words],
        {**os.environ, **environment(side.name, functions)},
    )
