"""`bluebridge completion`: prints the script by which a shell completes lines of `bluebridge`."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = (
        'Print what a shell reads: `eval "$(bluebridge completion bash)"` in ~/.bashrc, or with '
        "zsh in ~/.zshrc, completes commands, options, their values, guests that run and files."
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def main(options: argparse.Namespace) -> int:
    """Print the script; returns 0."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["bluebridge"], shell=options.shell))
    return 0
