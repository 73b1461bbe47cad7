"""Where artefacts and builds are kept. Standard library only, and little of it."""

from __future__ import annotations

import os


def cache_root() -> str:
    """`$BLUEBRIDGE_CACHE`, else `bluebridge` under `$XDG_CACHE_HOME` or `~/.cache`; absolute."""
    named = os.environ.get("BLUEBRIDGE_CACHE")
    if not named:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        named = os.path.join(base, "bluebridge")
    return os.path.abspath(os.path.expanduser(named))
