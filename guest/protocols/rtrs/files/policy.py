"""The file mpath_policy: names, numbers and letters of the policies."""

from __future__ import annotations

import errno

from bluebridge.guest.fuse.sysfs import parse_int

_POLICIES = (
    ("round-robin", "rr"),
    ("min-inflight", "mi"),
    ("min-latency", "ml"),
)


def policy_text(policy: str) -> str:
    """What the file says."""
    for number, (name, short) in enumerate(_POLICIES):
        if name == policy:
            return f"{name} ({short.upper()}: {number})\n"
    return f"Unknown ({policy})\n"


def parse_policy(data: bytes) -> str:
    """A policy by number, name or two letters, as the kernel takes it; raises `OSError`."""
    try:
        number = parse_int(data)
        if 0 <= number < len(_POLICIES):
            return _POLICIES[number][0]
    except OSError:
        pass
    words = data.partition(b"\0")[0].lower()
    for name, short in _POLICIES:
        if words.startswith(name.encode()) or words.removesuffix(b"\n") == short.encode():
            return name
    raise OSError(errno.EINVAL, "no policy")
