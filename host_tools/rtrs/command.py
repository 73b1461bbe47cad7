"""`bluebridge rtrs`: one module for each action."""

from __future__ import annotations

import argparse

from bluebridge.host_tools.rtrs import demo, matrix

_ACTIONS = {"demo": demo.main, "matrix": matrix.main}


def main(options: argparse.Namespace) -> int:
    """The exit status of the action. Raises `LabError`."""
    return _ACTIONS[options.action](options)
