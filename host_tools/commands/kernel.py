"""`bluebridge kernel`: which kernel guests have, what one needs, and one built from its source."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bluebridge.host_tools.commands.kmod import image_errors
from bluebridge.host_tools.errors import LabError
from bluebridge.host_tools.lab import software, stacks
from bluebridge.images import kernel_build, kernel_config
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.recipes.debian_kernels import DEBIAN_KERNELS
from bluebridge.images.recipes.kernel_source import KernelSourceRecipe, KernelToolsRecipe
from bluebridge.printable import printable_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command can do, each with its options."""
    parser.description = (
        "Guests run Debian 13's kernel unless `use` chose another, or --kernel names one. "
        "docs/your-kernel.md goes from a source to a guest."
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the kernels that guests can have, by name")
    use = actions.add_parser("use", help="have guests use a kernel until another is chosen")
    use.add_argument("name", metavar="NAME", help="of `list`; debian-13 is the usual one")
    config = actions.add_parser("config", help="print the configuration of a kernel for guests")
    build = actions.add_parser("build", help="build such a kernel; its name is `my` afterwards")
    build.add_argument("source", metavar="SOURCE", help="a kernel's tree, or debian-12 and so on")
    actions.add_parser("decode", help="print a kernel's messages with lines of its source")
    for action in (config, build):
        action.add_argument(
            "--debug",
            action="store_true",
            help="with KASAN, lockdep, kmemleak, DEBUG_OBJECTS and KCOV; its name is `my-debug`",
        )


def main(options: argparse.Namespace) -> int:
    """Do what was asked; return the exit status. Raises `LabError`."""
    actions: dict[str, Callable[[argparse.Namespace], None]] = {
        "list": _list, "use": _use, "config": _config, "build": _build, "decode": _decode,
    }  # fmt: skip
    with image_errors():
        actions[options.action](options)
    return 0


def _list(_: argparse.Namespace) -> None:
    artefacts, chosen = Artefacts(), software.choice()
    for each in DEBIAN_KERNELS:
        recipe = artefacts.debian(each)
        there = artefacts.found(recipe)
        what = f"Linux {recipe.release()}" if there else "fetched at its first use"
        _line(each.name, what, chosen)
    for name, debug in ((kernel_build.MY, False), (kernel_build.MY_DEBUG, True)):
        folder = kernel_build.built(artefacts.cache, debug)
        what = "none yet: `bluebridge kernel build`" if folder is None else str(folder)
        _line(name, what, chosen)
    if chosen not in software.names():
        _line(chosen, "an image", chosen)


def _line(name: str, what: str, chosen: str) -> None:
    mark = "*" if name == chosen else " "
    print(f"{mark} {name:<10} {what}")


def _use(options: argparse.Namespace) -> None:
    software.choose(options.name)
    print(f"guests use {software.choice()} from now on")


def _config(options: argparse.Namespace) -> None:
    print(kernel_config.text(options.debug), end="")


def _decode(_: argparse.Namespace) -> None:
    print(stacks.with_lines(printable_lines(sys.stdin.buffer.read())), end="")


def _build(options: argparse.Namespace) -> None:
    begin = time.monotonic()
    folder = build(options.source, options.debug)
    name = kernel_build.MY_DEBUG if options.debug else kernel_build.MY
    path = shlex.quote(str(folder))
    print(f"{name} is built after {time.monotonic() - begin:.0f} s: {folder}")
    print(f"  bluebridge up --kernel {name}")
    print(f"  bluebridge up --kernel {path}/bzImage --modules {path}")


def build(source: str, debug: bool) -> Path:
    """Build the kernel of a tree, or of the source of one of Debian's kernels; return its folder.

    Raises `ImageError` or `LabError`.
    """
    artefacts = Artefacts()
    if (debian := software.debian_kernel(source)) is not None:
        tree = artefacts.built(KernelSourceRecipe(artefacts.debian(debian))) / "tree"
    else:
        tree = Path(source)
        if not tree.is_dir():
            known = ", ".join(each.name for each in DEBIAN_KERNELS)
            raise LabError(f"there is no folder {source}", f"name a kernel's tree, or {known}")
    tools = KernelToolsRecipe(artefacts.cache, artefacts.packages)
    artefacts.built(tools)
    return kernel_build.build(tree, debug, artefacts.cache, tools)
