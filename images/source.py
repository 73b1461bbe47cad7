"""Where the source of this package stands: a checkout, or the folder it was installed into."""

from __future__ import annotations

from pathlib import Path

import bluebridge

PACKAGE = Path(bluebridge.__file__).resolve().parent
"""The folder `bluebridge`, with `device`, `guest`, `host_tools` and `images` in it."""
HOME = PACKAGE.parent
"""What holds `bluebridge`: a checkout, with `docs` and `build` beside it, or site-packages."""
