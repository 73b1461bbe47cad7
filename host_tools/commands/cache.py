"""`bluebridge cache`: what set-up made, as one file for another machine, and back."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.errors import Reporter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    export = actions.add_parser(
        "export",
        help="write what set-up made into a file",
        description="Write QEMU, kernel, guest root, compiled modules and a snapshot into FILE. It "
        "serves the same version of bluebridge, in this release of Debian or a later one.",
    )
    take = actions.add_parser(
        "import",
        help="take it over on another machine",
        description="Add what is in FILE to the cache; a damaged file, or one of another version "
        "of bluebridge, changes nothing.",
    )
    for each in (export, take):
        each.add_argument("file", type=Path, metavar="FILE")


def main(options: argparse.Namespace) -> int:
    """Export or import; returns 0, raises `LabError`."""
    from bluebridge.host_tools.lab.artefacts import image_errors
    from bluebridge.host_tools.processes import termination_as_exception

    with image_errors(), termination_as_exception():
        if options.action == "export":
            _export(options.file)
        else:
            _import(options.file)
    return 0


def _export(file: Path) -> None:
    from bluebridge.compiled import wanted
    from bluebridge.host_tools.lab.portable import finished
    from bluebridge.hot_modules import DEVICE
    from bluebridge.images import device_build, exchange
    from bluebridge.images.artefacts import Artefacts
    from bluebridge.images.report import ImageError

    artefacts = Artefacts()
    compiled = DEVICE.build() is not None
    if not compiled and not wanted():
        print("note: no compiled modules, as BLUEBRIDGE_PURE is set; the device runs interpreted")
    elif not compiled:
        try:
            device_build.ensure(DEVICE, artefacts.cache)
        except ImageError as error:
            print(f"note: without compiled modules of the device, which runs interpreted: {error}")
    folders, _ = finished(artefacts, Reporter())
    exchange.pack(artefacts, folders, file)
    print(f"{file}: {file.stat().st_size / 1e6:.0f} MB; take it over with: bluebridge cache import")


def _import(file: Path) -> None:
    from bluebridge.images import exchange
    from bluebridge.images.artefacts import Artefacts

    artefacts = Artefacts()
    for note in exchange.unpack(artefacts, file):
        print(f"note: {note}")
    print(f"{file}: in {artefacts.cache.root}")
