"""Which package mirror this machine uses; hosts are never written down in this project."""

from __future__ import annotations

import os
import shutil
import subprocess

from images.errors import ImageError

MEND = "set BLUEBRIDGE_MIRROR to the address of a Debian mirror"
FORMAT = "$(SITE)|$(RELEASE)|$(COMPONENT)"


def choose(listing: str) -> str | None:
    """The Debian mirror among the lines `site|release|component` of `apt-get indextargets`.

    A security archive carries no full suite, and other vendors' archives no Debian, so the site
    that offers `main` of a plain Debian suite is taken; None when there is none.
    """
    for line in listing.splitlines():
        site, _, rest = line.strip().partition("|")
        release, _, component = rest.partition("|")
        plain = release.isalpha() and release.islower()
        if component == "main" and plain and site.rstrip("/").endswith("/debian"):
            return site.rstrip("/")
    return None


def debian_mirror() -> str:
    """Address of the mirror; `BLUEBRIDGE_MIRROR` overrides. Raises `ImageError`."""
    named = os.environ.get("BLUEBRIDGE_MIRROR")
    if named:
        return named.rstrip("/")
    if shutil.which("apt-get") is None:
        raise ImageError("this machine has no apt-get", "use Debian 12 or 13")
    command = ["apt-get", "indextargets", "--format", FORMAT]
    listing = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    site = choose(listing)
    if site is None:
        raise ImageError("apt's configuration names no Debian mirror", MEND)
    return site
