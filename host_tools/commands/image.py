"""`bluebridge image build`: the lab as one container image, made without a registry."""

from __future__ import annotations

import argparse
from pathlib import Path

from bluebridge.host_tools.errors import Reporter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    build = actions.add_parser(
        "build",
        help="make the image",
        description="Write an image with a small Debian, bluebridge, QEMU, kernel, guest root and "
        "a snapshot into FILE, for `podman load -i FILE` or `docker load -i FILE`.",
    )
    build.add_argument(
        "file", type=Path, metavar="FILE", nargs="?", default=Path("bluebridge-image.tar"),
        help="default: bluebridge-image.tar",
    )  # fmt: skip
    build.add_argument(
        "--interpreted", action="store_true", help="compile nothing: quick to make, slow to run"
    )


def main(options: argparse.Namespace) -> int:
    """Make the image; returns 0, raises `LabError`."""
    from bluebridge.host_tools.lab.artefacts import image_errors
    from bluebridge.host_tools.lab.portable import finished
    from bluebridge.host_tools.processes import termination_as_exception
    from bluebridge.images import container
    from bluebridge.images.artefacts import Artefacts

    with image_errors(), termination_as_exception():
        container.release()  # first, since all else takes long
        artefacts = Artefacts()
        folders, snapshot = finished(artefacts, Reporter())
        container.build(
            artefacts, folders, snapshot, options.file, compiled=not options.interpreted
        )
    size = options.file.stat().st_size / 1e6
    print(f"{options.file}: {size:.0f} MB; take it over with: podman load -i {options.file}")
    return 0
