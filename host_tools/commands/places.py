"""Where a file is: on the host, or in a guest as NAME:PATH."""

from __future__ import annotations

import re
from dataclasses import dataclass

_IN_GUEST = re.compile(r"([A-Za-z][A-Za-z0-9]*):(.*)", re.DOTALL)


@dataclass(frozen=True)
class Place:
    """A path, in a guest if `guest` is not empty."""

    guest: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """`a:x` is in a guest; `./a:x` and `/a:x` are here. `a:` is the root user's home there."""
        match = _IN_GUEST.fullmatch(text)
        if match is None:
            return cls("", text)
        path = match[2] or "./"
        # Commands in a guest start in /root, so that is what paths are relative to.
        return cls(match[1], path if path.startswith("/") else f"/root/{path}")

    @property
    def wants_folder(self) -> bool:
        """Whether the path itself says that it is a folder."""
        return self.path.endswith(("/", "/.", "/..")) or self.path in (".", "..")

    def inside(self, name: str) -> Place:
        """`name` in this folder."""
        return Place(self.guest, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return f"{self.guest}:{self.path}" if self.guest else self.path
