"""The Debian package mirror that this machine's apt configuration names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from bluebridge.images.errors import ImageError

MEND = "set BLUEBRIDGE_MIRROR to the address of a Debian mirror"
INDEX = re.compile(r"^'(?P<site>[^']+)/dists/(?P<suite>[^']+)/(?:In)?Release'", re.MULTILINE)
CODENAMES = ("bullseye", "bookworm", "trixie", "forky", "duke", "sid")
ALIASES = ("oldoldstable", "oldstable", "stable", "testing", "unstable")


def choose(listing: str) -> str | None:
    """The Debian mirror among the addresses that `apt-get update --print-uris` prints.

    A security archive has no full suite, and other vendors' archives are not Debian, though some
    use its suite names: a site that also has the suite's updates, or whose path ends in `debian`,
    is preferred, and the name `stable` alone is not enough. None when there is no mirror.
    """
    offers = [(match["site"], match["suite"]) for match in INDEX.finditer(listing)]
    found: list[tuple[int, str]] = []
    for site, suite in offers:
        signs = 2 * ((site, f"{suite}-updates") in offers) + site.rstrip("/").endswith("/debian")
        # Installation discs have neither sources nor backports.
        named = suite in CODENAMES or (signs and suite in ALIASES)
        if named and not site.startswith("cdrom:"):
            found.append((signs, site.rstrip("/")))
    return max(found, key=lambda offer: offer[0])[1] if found else None


def debian_mirror() -> str:
    """Address of the mirror; `BLUEBRIDGE_MIRROR` overrides. Raises `ImageError`.

    Apt prints what it would fetch: that needs no package lists, which a new machine or container
    lacks, and resolves lists of mirrors (`mirror+file:`).
    """
    named = os.environ.get("BLUEBRIDGE_MIRROR")
    if named:
        return named.rstrip("/")
    if shutil.which("apt-get") is None:
        raise ImageError("this machine has no apt-get", "use Debian 12 or 13")
    command = ["apt-get", "update", "--print-uris"]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    site = choose(listing)
    if site is None:
        raise ImageError("apt's configuration names no Debian mirror", MEND)
    return site
