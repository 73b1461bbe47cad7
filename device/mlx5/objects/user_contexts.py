"""User contexts: which objects belong to which program that sends firmware commands itself (DevX).

A command carries the number of the context that it is sent for, and may change or query objects of
that context alone. Commands without one are a driver's own, and may do all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from bluebridge.device.layout.mlx5.commands import INPUT, OBJECTS, Opcode, Place, Status, name_of
from bluebridge.device.layout.mlx5.contexts import AccessMode
from bluebridge.device.layout.mlx5.objects import ENTRY, GROUP_MEMBER
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QPC, Service
from bluebridge.device.layout.mlx5.steering import FLOW_TABLE
from bluebridge.device.layout.mlx5.user_contexts import PRIVILEGED, SHARED, UserRight
from bluebridge.device.mlx5.numbers import Numbers
from bluebridge.device.mlx5.objects.keys import access_mode
from bluebridge.device.mlx5.objects.uses import CQ, PD, SRQ, XRCD, referred
from bluebridge.device.mlx5.rings.user_memory import Part, UserMemory
from bluebridge.device.mlx5.settings.capabilities import CONTEXT_RIGHTS, LOG_MAX_CONTEXTS
from bluebridge.device.mlx5.settings.refused import Refused

_CLOSED: Final = frozenset(
    {
        Opcode.ENABLE_HCA, Opcode.DISABLE_HCA, Opcode.INIT_HCA, Opcode.TEARDOWN_HCA,
        Opcode.SET_HCA_CAP, Opcode.QUERY_PAGES, Opcode.MANAGE_PAGES, Opcode.SET_ISSI,
        Opcode.SET_DRIVER_VERSION, Opcode.ACCESS_REG, Opcode.CREATE_EQ, Opcode.DESTROY_EQ,
        Opcode.MODIFY_VPORT_STATE, Opcode.MODIFY_NIC_VPORT_CONTEXT, Opcode.SET_ROCE_ADDRESS,
        Opcode.SET_FLOW_TABLE_ROOT, Opcode.CREATE_UCTX, Opcode.DESTROY_UCTX,
        Opcode.PAGE_FAULT_RESUME,
    }
)  # fmt: skip
"""Commands that are a driver's alone: they are about the adapter, not about an object."""
_TABLE: Final = Place("table", FLOW_TABLE.field("table").offset)
_MEMBER: Final = Place("qpn", GROUP_MEMBER.field("qpn").offset)
_WITHIN: Final[dict[int, Place]] = {
    Opcode.CREATE_FLOW_GROUP: _TABLE, Opcode.DESTROY_FLOW_GROUP: _TABLE,
    Opcode.SET_FLOW_TABLE_ENTRY: _TABLE,
    Opcode.QUERY_FLOW_TABLE_ENTRY: _TABLE, Opcode.DELETE_FLOW_TABLE_ENTRY: _TABLE,
    Opcode.ATTACH_TO_MCG: _MEMBER, Opcode.DETACH_FROM_MCG: _MEMBER,
}  # fmt: skip
"""The object that has what a command makes, changes or ends, so that its owner counts."""
_WORDS: Final = {CQ: ("cqn",), PD: ("pd",), SRQ: ("rmpn", "srqn"), XRCD: ("xrcd",)}
"""The words for an object that others refer to, by its kind."""
_ENDS: Final = ("DESTROY_", "DEALLOC_")


def _trusts_pair(data: bytes) -> bool:
    """Return True for a queue pair that needs no key, or says itself where keys have memory."""
    get = QPC.get
    return (
        get(data, "service", QP_CONTEXT) == Service.UMR
        or bool(get(data, "reserved_lkey", QP_CONTEXT))
        or bool(get(data, "fast_register", QP_CONTEXT))
    )


_REACHES: Final[dict[int, Callable[[bytes], bool]]] = {
    Opcode.CREATE_MKEY: lambda data: access_mode(data, ENTRY) == AccessMode.PHYSICAL,
    Opcode.CREATE_QP: _trusts_pair,
    Opcode.RST2INIT_QP: _trusts_pair,
}
"""Whether a command reaches all of guest memory, which is for a driver alone."""


class UserContexts:
    """The user contexts of one adapter, and the owners of the objects that they made."""

    def __init__(self, memory: UserMemory) -> None:
        self._memory = memory
        self._numbers = Numbers("user context", 1, (1 << LOG_MAX_CONTEXTS) - 1)
        self._rights: dict[int, int] = {}
        self._objects: Counter[int] = Counter()
        """How many objects each context has."""
        self._owners: dict[tuple[str, int], int] = {}
        self._uses: dict[tuple[str, int], dict[Part, int]] = {}
        """Numbers of the memory of users that an object is in."""

    def reset(self) -> None:
        """Forget all user contexts, and who owns what."""
        self._numbers.reset()
        self._rights.clear()
        self._objects.clear()
        self._owners.clear()
        self._uses.clear()

    def __len__(self) -> int:
        return len(self._rights)

    def create(self, rights: int) -> int:
        """Make a context (CREATE_UCTX); returns its number. Raises `Refused`."""
        if rights & ~CONTEXT_RIGHTS:
            raise Refused(Status.BAD_PARAM, f"a user context with rights {rights:#x}")
        number = self._numbers.take()
        self._rights[number] = rights
        return number

    def destroy(self, number: int) -> None:
        """Destroy a context without objects; raises `Refused`: BAD_RES, RES_BUSY."""
        self._numbers.check(number)
        if self._objects[number]:
            raise Refused(Status.RES_BUSY, f"user context {number:#x} has objects")
        self._numbers.free(number)
        del self._rights[number]

    def admit(self, data: bytes) -> None:
        """Check that a command, by its input, is one that its context may send.

        Raises `Refused`: BAD_RES for an object of others, BAD_PARAM for all else.
        """
        uid, opcode = INPUT.get(data, "uid"), INPUT.get(data, "opcode")
        self._memory.begin(uid)
        if uid in (PRIVILEGED, SHARED):
            return
        if uid not in self._rights:
            raise Refused(Status.BAD_PARAM, f"there is no user context {uid:#x}")
        if opcode in _CLOSED:
            raise Refused(Status.BAD_PARAM, f"{name_of(opcode)} is not for user contexts")
        if opcode == Opcode.CREATE_SQ and not self._rights[uid] & UserRight.RAW_SEND:
            raise Refused(Status.BAD_PARAM, f"user context {uid:#x} may not send frames")
        if opcode in _REACHES and _REACHES[opcode](data):
            raise Refused(Status.BAD_PARAM, f"{name_of(opcode)} for memory that no key names")
        place = _WITHIN.get(opcode) or OBJECTS.get(opcode)
        if place is not None and not place.made:
            self._check_owner(uid, [_key(place, data)])
        for kind, number in referred(data):
            self._check_owner(uid, [(word, number) for word in _WORDS[kind]])

    def _check_owner(self, uid: int, keys: list[tuple[str, int]]) -> None:
        """Raise `Refused` (BAD_RES) unless a context has the object with one of these names."""
        if not any(self._owners.get(key, PRIVILEGED) in (uid, SHARED) for key in keys):
            word, number = keys[0]
            raise Refused(Status.BAD_RES, f"{word} {number:#x} of another user context")

    def note(self, data: bytes, output: bytes) -> None:
        """Take note of an object that a command made, moved or ended, by its input and output."""
        place, uid = OBJECTS.get(INPUT.get(data, "opcode")), INPUT.get(data, "uid")
        if place is None or INPUT.get(data, "opcode") in _WITHIN:
            return
        if place.made:
            if uid != PRIVILEGED:
                self._owners[_key(place, output)] = uid
                self._objects[uid] += 1
            if self._memory.used:
                self._uses[_key(place, output)] = self._memory.hold()
        elif name_of(INPUT.get(data, "opcode")).startswith(_ENDS):
            key = _key(place, data)
            if key in self._owners:
                self._objects[self._owners.pop(key)] -= 1
            self._memory.release(self._uses.pop(key, {}).values())
        elif self._memory.used:
            kept = self._uses.setdefault(_key(place, data), {})
            self._memory.release([kept[part] for part in self._memory.used if part in kept])
            kept.update(self._memory.hold())


def _key(place: Place, data: bytes) -> tuple[str, int]:
    return place.word, int.from_bytes(data[place.offset : place.offset + 4], "big") & 0xFFFFFF
