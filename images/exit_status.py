"""The exit status of the commands that set up this machine; standard library only."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bluebridge.images.errors import ImageError


def exit_status(action: Callable[[], None]) -> int:
    """Run `action`; return 0, 1 after printing an `ImageError` as a line, or 130 after Ctrl-C."""
    try:
        action()
    except ImageError as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("images: stopped", file=sys.stderr)
        return 130
    return 0
