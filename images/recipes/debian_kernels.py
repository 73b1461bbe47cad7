"""The kernels of Debian that guests can have, by the names that users call them."""

from __future__ import annotations

from dataclasses import dataclass

from bluebridge.images.apt import BACKPORTS, SUITE


@dataclass(frozen=True)
class DebianKernel:
    """A kernel of Debian that guests can have."""

    name: str
    release: str
    """The suite, or its backports, that its packages are taken from."""
    image: str
    """A regular expression for the name of its package, whose newest match is taken."""
    alias: str
    """The version of Linux, by which users call it as well; empty where it changes."""
    parts: tuple[str, ...] = ("linux-image",)
    """The packages that it comes in, without the release at the end of their names."""


USUAL = DebianKernel("debian-13", SUITE, r"linux-image-6\.12\.\d+\+deb13-amd64", "6.12")
"""The kernel of guests unless another one is chosen."""
DEBIAN_KERNELS = (
    DebianKernel("debian-12", "bookworm", r"linux-image-6\.1\.0-\d+-amd64", "6.1"),
    USUAL,
    DebianKernel(
        "backports",
        f"{SUITE}{BACKPORTS}",
        r"linux-binary-\d+\.\d+\.\d+\+deb13-amd64",
        "",
        ("linux-binary", "linux-modules", "linux-base"),
    ),
)
