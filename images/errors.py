"""The one error of this package."""

from __future__ import annotations

NO_ROOM = "free some space, or set BLUEBRIDGE_CACHE to a folder on another disk"


class ImageError(Exception):
    """Something outside our code is missing or failed.

    `what` says what happened, `mend` the command or step that mends it; both are one line.
    """

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}; to mend it: {mend}")
        self.what = what
        self.mend = mend
