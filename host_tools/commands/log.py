"""`bluebridge log`: shows a bus log, by default the newest, with the options of the analyzer."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.analyzer import log_command as cli
from bluebridge.host_tools.errors import UsageError
from bluebridge.host_tools.keeper import registry
from bluebridge.host_tools.lab.roots import state_root


def main(options: argparse.Namespace) -> int:
    """Show the log; return the exit status. Raises `UsageError` where there is no log at all."""
    # Neither a comparison of two named logs nor the dissector is about one log.
    if options.folder is None and options.diff is None and options.dissector is None:
        options.folder = newest()
    return cli.main(options)


def newest() -> Path:
    """Return the log folder of the newest running pair, else of the newest run that is kept.

    Raises `UsageError` where there is no log at all.
    """
    running = [Path(pair.logs) for _, pair in registry.pairs() if pair.logs]
    # The names of kept runs begin with their time, so they sort by it.
    kept = sorted(path for path in state_root().glob("run-*") if (path / "bus").is_dir())
    for folder in (*reversed(running), *reversed(kept)):
        return folder
    raise UsageError("there is no log yet", "start a pair with `bluebridge up`, or name a folder")
