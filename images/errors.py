"""The error class of `bluebridge.images`."""

from __future__ import annotations

import errno

NO_ROOM = "free some space, or set BLUEBRIDGE_CACHE to a folder on another disk"
ELSEWHERE = "set BLUEBRIDGE_CACHE to a folder of yours"


class ImageError(Exception):
    """Something that the project uses is missing or failed.

    `what` says what happened, `mend` is the command or step that mends it; each is one line.
    """

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}; to mend it: {mend}")
        self.what = what
        self.mend = mend


def of_system(error: OSError, place: object = "") -> ImageError:
    """Return the `ImageError` for an `OSError`; `place` is named when it has no file name."""
    where = error.filename or place
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ImageError(f"the disk of {where or 'the cache'} is full", NO_ROOM)
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR):
        return ImageError(f"cannot write {where or 'the cache'}: {error.strerror}", ELSEWHERE)
    if error.errno == errno.ENOMEM:
        return ImageError("this machine is out of memory", "end other programs")
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ImageError(f"{error.strerror}", "raise the limit with `ulimit -n 4096`")
    told = f"{where}: {error.strerror or error}" if where else f"{error.strerror or error}"
    return ImageError(told, "see that message; `make setup` tries again")
