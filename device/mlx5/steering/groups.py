"""Groups of queue pairs that get copies of datagrams to a GID (ATTACH_TO_MCG)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.frames.rules import Member
from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.mlx5.settings.refused import Refused

MAX_GROUPS: Final = 1 << 13
MAX_MEMBERS: Final = 240
"""Most queue pairs of a group."""


class Groups:
    """The groups of one adapter, by GID, with how often each member joined."""

    def __init__(self) -> None:
        self._members: dict[bytes, dict[int, list[int]]] = {}

    def reset(self) -> None:
        """Forget all groups."""
        self._members.clear()

    def __len__(self) -> int:
        return len(self._members)

    def of(self, gid: bytes) -> Sequence[Member]:
        """Return the members that get a copy of a datagram to a group."""
        found = self._members.get(gid)
        return [(qpn, bool(own)) for qpn, (_, own) in found.items()] if found else ()

    def attach(self, gid: bytes, qpn: int, *, refuses_own: bool) -> None:
        """Have a queue pair get a group's datagrams; raises `Refused` (LIM_ERR)."""
        members = self._members.get(gid)
        if members is None:
            if len(self._members) >= MAX_GROUPS:
                raise Refused(Status.LIM_ERR, f"{MAX_GROUPS} groups")
            members = self._members[gid] = {}
        if qpn not in members and len(members) >= MAX_MEMBERS:
            raise Refused(Status.LIM_ERR, f"{MAX_MEMBERS} members of a group")
        count, _ = members.get(qpn, (0, 0))
        members[qpn] = [count + 1, int(refuses_own)]

    def detach(self, gid: bytes, qpn: int) -> None:
        """Undo one `attach`; raises `Refused` (BAD_RES)."""
        members = self._members.get(gid, {})
        if qpn not in members:
            raise Refused(Status.BAD_RES, f"QP {qpn:#x} is not in group {gid.hex()}")
        members[qpn][0] -= 1
        if not members[qpn][0]:
            self._drop(gid, qpn)

    def leave(self, qpn: int) -> None:
        """Remove a queue pair that is destroyed from all groups."""
        for gid in [gid for gid, members in self._members.items() if qpn in members]:
            self._drop(gid, qpn)

    def _drop(self, gid: bytes, qpn: int) -> None:
        del self._members[gid][qpn]
        if not self._members[gid]:
            del self._members[gid]
