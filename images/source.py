"""The folders of this package: in a checkout or in site-packages."""

from __future__ import annotations

from pathlib import Path

import bluebridge

PACKAGE = Path(bluebridge.__file__).resolve().parent
"""The folder `bluebridge`, with `device`, `guest`, `host_tools` and `images` in it."""
HOME = PACKAGE.parent
"""The folder that contains `bluebridge`: a checkout with `docs` and `build`, or site-packages."""
