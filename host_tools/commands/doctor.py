"""`bluebridge doctor`: what this machine has, what is missing, what mends it."""

from __future__ import annotations

import argparse

from bluebridge.images import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no options."""


def main(options: argparse.Namespace) -> int:
    """Print what was found; returns 0 if nothing is missing, else 1."""
    return doctor.main()
