"""The reason why a pair has ended: a file beside the logs, until the next `up` or `down`.

A first one is written while the pair runs, since a keeper that is killed cannot write one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bluebridge.host_tools.lab.roots import runtime_root, state_root


@dataclass(frozen=True)
class EndRecord:
    """The record of a pair that ended: how, when, and where its logs are."""

    number: int
    guests: tuple[str, ...]
    why: str
    logs: str
    written: float
    """The time of the record, in seconds since the epoch."""


def write_end(number: int, guests: tuple[str, ...], why: str, logs: str) -> None:
    """Write the record of pair `number` in place of an older one; `OSError`s are ignored."""
    ended = EndRecord(number, guests, why, logs, time.time())
    with contextlib.suppress(OSError):
        path = _path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(ended)))
        os.replace(draft, path)


def forget_end(number: int) -> None:
    """Remove the record of pair `number`, if there is one, as the pair ended on demand."""
    with contextlib.suppress(OSError):
        _path(number).unlink()


def ended(living: set[int]) -> list[EndRecord]:
    """Return the records of pairs whose numbers are not among `living`, sorted by number."""
    found = []
    for path in sorted(_folder().glob(f"{_key()}-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            fields = json.loads(path.read_text())
            ended = EndRecord(**{**fields, "guests": tuple(fields["guests"])})
            if ended.number not in living:
                found.append(ended)
    return sorted(found, key=lambda each: each.number)


def _folder() -> Path:
    return state_root() / "ended"


def _key() -> str:
    """Return a text that tells the pairs of one runtime root from those of another."""
    return hashlib.sha256(os.fsencode(runtime_root().resolve())).hexdigest()[:12]


def _path(number: int) -> Path:
    return _folder() / f"{_key()}-{number}.json"
