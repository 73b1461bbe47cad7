"""Failures with a known cause, which a run tells but does not end with a bad status for.

An entry is the part of a key (`setup/suite/name`, and `: test` for one of many) that names what
fails, and why. An entry that no longer fails must go: the run says so.
"""

from __future__ import annotations

KNOWN: dict[str, str] = {}


def cause(key: str) -> str:
    """Why what `key` names fails, or nothing."""
    return next((why for part, why in KNOWN.items() if part in key), "")
