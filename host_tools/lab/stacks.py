"""Stacks in what a guest's kernel printed, with lines of the source where its tree is here."""

from __future__ import annotations

_SIGN = "+0x"
"""What every frame of a stack has: `name+0x1a/0x80`."""


def with_lines(text: str) -> str:
    """Return `text` with `(file:line)` behind each frame; as it is for a kernel built elsewhere."""
    if _SIGN not in text:
        return text
    from bluebridge.images import stack_lines  # dear, and most texts have no stack

    return stack_lines.with_lines(text)
