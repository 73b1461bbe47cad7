"""Why a pair is no longer there: a file beside the logs, until the next `up` or `down`.

It is written while the pair lives, since a keeper that is killed writes nothing any more.
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
class Epitaph:
    """What is remembered of a pair."""

    number: int
    guests: tuple[str, ...]
    why: str
    logs: str
    written: float
    """Seconds since the epoch."""


def write(number: int, guests: tuple[str, ...], why: str, logs: str) -> None:
    """Remember this, in place of what was remembered before; a full disk only costs the memory."""
    epitaph = Epitaph(number, guests, why, logs, time.time())
    with contextlib.suppress(OSError):
        path = _path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(epitaph)))
        os.replace(draft, path)


def forget(number: int) -> None:
    """The pair ended as it should."""
    with contextlib.suppress(OSError):
        _path(number).unlink()


def read(living: set[int]) -> list[Epitaph]:
    """Those of pairs that are not among the `living` numbers, by number."""
    found = []
    for path in sorted(_folder().glob(f"{_key()}-*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            fields = json.loads(path.read_text())
            epitaph = Epitaph(**{**fields, "guests": tuple(fields["guests"])})
            if epitaph.number not in living:
                found.append(epitaph)
    return sorted(found, key=lambda each: each.number)


def _folder() -> Path:
    return state_root() / "ended"


def _key() -> str:
    """Tells the pairs of one runtime root from those of another."""
    return hashlib.sha256(os.fsencode(runtime_root().resolve())).hexdigest()[:12]


def _path(number: int) -> Path:
    return _folder() / f"{_key()}-{number}.json"
