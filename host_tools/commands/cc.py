"""`bluebridge cc`: build a user's C program for the guests."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.commands.kmod import image_errors
from bluebridge.host_tools.errors import UsageError

_DESCRIPTION = """\
Build the C program of FILE.c (and more, of one folder) for the guests, against libibverbs and
librdmacm. The headers beside it are found. What the compiler is to know besides follows --, as in

  bluebridge cc pingpong.c -o pingpong -- -DSIZE=64
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bluebridge cc`, apart from what follows `--`."""
    parser.description = _DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "bluebridge cc [-h] [-o PROGRAM] FILE.c [FILE.c ...] [-- FLAG ...]"
    parser.add_argument("sources", type=Path, nargs="+", metavar="FILE.c", help="the source")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PROGRAM",
        help="the program (default: FILE in the current folder)",
    )


def main(options: argparse.Namespace) -> int:
    """Build the program and print its path; returns 0. Raises `LabError`, as `kmod` does."""
    from bluebridge.images.program import build

    output = options.output or Path(options.sources[0].stem)
    if output.is_dir():
        raise UsageError(f"{output} is a folder", "name the program with -o")
    if output.resolve() in [source.resolve() for source in options.sources]:
        raise UsageError(f"{output} is a source", "name the program with -o")
    with image_errors():
        print(build(options.sources, output, options.words))
    return 0
