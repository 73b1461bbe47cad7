"""What a client tells its user."""

from __future__ import annotations

import errno
import os

from bluebridge.guest.protocols.rnbd.engine.actions import (
    ClientAction,
    DeviceState,
    Mapped,
    Offline,
    Remapped,
    SessionClosed,
    SessionReady,
    Unmapped,
)


def words_for(action: ClientAction) -> str | None:
    """A line for an action that a user should see."""
    if isinstance(action, Offline):
        return f"{action.device.name} is offline: no path is connected"
    if isinstance(action, Remapped) and action.device.state == DeviceState.UNMAPPED:
        return None
    if isinstance(action, Remapped):
        failed = f"stays offline: {_reason(action.errno)}"
        return f"{action.device.name} {failed if action.errno else 'is online'}"
    if isinstance(action, Unmapped):
        return f"{action.device.name} is unmapped"
    if isinstance(action, Mapped):
        return f"{action.device.name} cannot be mapped: {_reason(action.errno)}"
    if isinstance(action, SessionReady) and action.errno:
        return f"no session: {os.strerror(action.errno)}: is the server running?"
    if isinstance(action, SessionClosed):
        return "the session is closed"
    return None


def _reason(error: int) -> str:
    """Why a server refuses a device."""
    return _REASONS.get(error, os.strerror(error))


_REASONS = {
    errno.ENOENT: "the server exports nothing of that name",
    errno.EPERM: "another client has it open for writing: use --access ro or migration",
    errno.EACCES: "the server has it read-only: use --access ro",
}
