"""`python -m bluebridge.images`: build, list and drop the artefacts."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bluebridge.hot_modules import DEVICE
from bluebridge.images import device_build, exchange, guest_build
from bluebridge.images.accelerator import accelerator
from bluebridge.images.artefacts import Artefacts
from bluebridge.images.cache import HOME
from bluebridge.images.overlay import code_key
from bluebridge.images.recipes.recipe import PythonHeadersRecipe
from bluebridge.images.report import ImageError, of_system, say
from bluebridge.images.unpack import tree_size


def main(words: Sequence[str] | None = None) -> int:
    """Exit status 0, 1 after one line of what failed, or 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m bluebridge.images", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build what is missing")
    build.add_argument("--interpreted", action="store_true", help="all but the compiled modules")
    commands.add_parser("list", help="what is there and how big it is")
    path = commands.add_parser("path", help="folder of one artefact, built if need be")
    path.add_argument("name")
    qemu = commands.add_parser("qemu", help="write a script that starts the QEMU of guests")
    qemu.add_argument("file", type=Path)
    take = commands.add_parser("import", help="take over a file of `bluebridge cache export`")
    take.add_argument("file", type=Path)
    commands.add_parser("refresh", help="take today's package versions at the next build")
    commands.add_parser("clean", help="remove the whole cache")
    options = parser.parse_args(words)
    try:
        _run(options, Artefacts())
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print(f"images: {of_system(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("images: stopped; what is finished is kept", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace, artefacts: Artefacts) -> None:
    command = options.command
    if command == "build":
        _build(artefacts, compiled=not options.interpreted)
    elif command == "path":
        name = options.name
        if name not in (names := _names(artefacts)):
            known = ", ".join(names)
            raise ImageError(f"there is no artefact {name}", f"name one of {known}")
        print(artefacts.folder(name))
    elif command == "qemu":
        _write_qemu(artefacts, options.file)
    elif command == "import":
        for note in exchange.unpack(artefacts, options.file):
            say(note)
    elif command == "refresh":
        artefacts.packages.refresh()
    elif command == "clean":
        shutil.rmtree(artefacts.cache.root, ignore_errors=True)
    else:
        _list(artefacts)


def _write_qemu(artefacts: Artefacts, path: Path) -> None:
    """Write a program that starts the QEMU of guests, for tools that want one by its path."""
    qemu = artefacts.qemu()
    words = ["env", *(f"{name}={value}" for name, value in qemu.env.items()), *qemu.command]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


def _build(artefacts: Artefacts, compiled: bool) -> None:
    """Build what is missing; the compiler of the device works beside the downloads."""
    artefacts.cache.root.mkdir(parents=True, exist_ok=True)
    if artefacts.missing():
        artefacts.cache.need_room()
    if not compiled:
        artefacts.build()
        accelerator(artefacts)
        if DEVICE.build() is None:
            say("device: runs interpreted; `make setup` compiles it")
        return
    compiling = device_build.start()
    try:
        artefacts.build()
        compile_guest(artefacts)
        accelerator(artefacts)
    finally:
        compiling.wait()


def compile_guest(artefacts: Artefacts) -> None:
    """Compile the guest's code; where that cannot be done, say why: it runs interpreted then."""
    try:
        headers = artefacts.folder(PythonHeadersRecipe.name)
        guest_build.ensure(artefacts.cache, code_key(HOME), headers)
    except ImageError as error:
        say(f"guest code: runs interpreted: {error}")


def _names(artefacts: Artefacts) -> list[str]:
    return [*artefacts.recipes, *artefacts.on_demand]


def _list(artefacts: Artefacts) -> None:
    for name in _names(artefacts):
        folder = artefacts.present(name)
        if folder is None:
            print(f"{name:<14} not built")
        else:
            print(f"{name:<14} {tree_size(folder) / 1e6:7.1f} MB  {folder}")


if __name__ == "__main__":
    sys.exit(main())
