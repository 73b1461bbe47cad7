"""User contexts: which objects belong to which program that sends firmware commands itself (DevX).

A command carries the number of the context that it is sent for, and may change, query or name
objects of that context alone. Commands without one are a driver's own, and may do all. No command
ends a PD, XRC domain, CQ, SRQ, RQ or RQT that others name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bluebridge.device.layout.mlx5.commands import INPUT, OBJECTS, Opcode, Place, Status, name_of
from bluebridge.device.layout.mlx5.contexts import AccessMode
from bluebridge.device.layout.mlx5.objects import ENTRY, GROUP_MEMBER
from bluebridge.device.layout.mlx5.queue_pairs import QP_CONTEXT, QPC, Service
from bluebridge.device.layout.mlx5.steering import FLOW_TABLE
from bluebridge.device.layout.mlx5.user_contexts import PRIVILEGED, SHARED, UserRight
from bluebridge.device.mlx5.numbers import Numbers, Table
from bluebridge.device.mlx5.objects.keys import access_mode
from bluebridge.device.mlx5.objects.references import (
    CQ,
    PD,
    RQ,
    RQT,
    SRQ,
    XRCD,
    Object,
    object_at,
    referred,
)
from bluebridge.device.mlx5.rings.user_memory import Part, UserMemory
from bluebridge.device.mlx5.settings.capabilities import CONTEXT_RIGHTS, LOG_MAX_CONTEXTS
from bluebridge.device.mlx5.settings.refused import Refused
from bluebridge.device.rdma.memory.regions import MemoryRegions

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
_ENDS: Final = ("DESTROY_", "DEALLOC_")
_KEPT: Final = (CQ, PD, RQ, RQT, SRQ, XRCD)
"""The kinds of object that are not ended while others name them."""
_NO_MEMORY: Final[dict[Part, int]] = {}


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


@dataclass(slots=True)
class _Record:
    """An object's owner, the other objects that it names, and the memory that its parts are in."""

    owner: int
    named: list[Object]
    memory: dict[Part, int]


class UserContexts:
    """The user contexts of one adapter, and a record of each object that commands made."""

    def __init__(self, memory: UserMemory, regions: MemoryRegions) -> None:
        self._memory = memory
        self._regions = regions
        numbers = Numbers("user context", 1, (1 << LOG_MAX_CONTEXTS) - 1)
        self._rights: Table[int] = Table("user context", numbers)
        self.reset()

    def reset(self) -> None:
        """Forget all user contexts and objects."""
        self._rights.reset()
        self._objects: dict[Object, _Record] = {}
        self._made: Counter[int] = Counter()
        """How many objects each context has."""
        self._uses: Counter[Object] = Counter()
        """How often others name an object."""

    def __len__(self) -> int:
        return len(self._rights)

    def create(self, rights: int) -> int:
        """Make a context (CREATE_UCTX); returns its number. Raises `Refused`."""
        if rights & ~CONTEXT_RIGHTS:
            raise Refused(Status.BAD_PARAM, f"a user context with rights {rights:#x}")
        return self._rights.add(rights)

    def destroy(self, number: int) -> None:
        """Destroy a context without objects; raises `Refused`: BAD_RES, BAD_RES_STATE."""
        self._rights.known(number)
        if self._made[number]:
            raise Refused(Status.BAD_RES_STATE, f"user context {number:#x} has objects")
        self._rights.remove(number)

    def admit(self, data: bytes) -> None:
        """Check that a command, by its input, is one that its context may send now.

        Raises `Refused`: BAD_RES for an object of others, BAD_RES_STATE for the end of one that
        others name, BAD_PARAM for all else.
        """
        uid, opcode = INPUT.get(data, "uid"), INPUT.get(data, "opcode")
        self._memory.begin(uid)
        place, name = _WITHIN.get(opcode) or OBJECTS.get(opcode), name_of(opcode)
        about = None if place is None or place.made else object_at(place, data)
        if uid not in (PRIVILEGED, SHARED):
            self._check_command(uid, opcode, data)
            if about is not None:
                self._check_owner(about, (uid, SHARED) if name.startswith("QUERY_") else (uid,))
            for each in referred(data):
                self._check_owner(each, (uid, SHARED))
        if about is not None and opcode not in _WITHIN and name.startswith(_ENDS):
            self._check_unused(about)

    def _check_command(self, uid: int, opcode: int, data: bytes) -> None:
        """Raise `Refused` (BAD_PARAM) for a command that is not for a context."""
        if uid not in self._rights:
            raise Refused(Status.BAD_PARAM, f"there is no user context {uid:#x}")
        if opcode in _CLOSED:
            raise Refused(Status.BAD_PARAM, f"{name_of(opcode)} is not for user contexts")
        if opcode == Opcode.CREATE_SQ and not self._rights[uid] & UserRight.RAW_SEND:
            raise Refused(Status.BAD_PARAM, f"user context {uid:#x} may not send frames")
        if opcode in _REACHES and _REACHES[opcode](data):
            raise Refused(Status.BAD_PARAM, f"{name_of(opcode)} for memory that no key names")

    def _check_owner(self, wanted: Object, owners: tuple[int, ...]) -> None:
        """Raise `Refused` (BAD_RES) unless one of these contexts made an object."""
        record = self._objects.get(wanted)
        if record is None or record.owner not in owners:
            raise Refused(Status.BAD_RES, f"{wanted[0]} {wanted[1]:#x} of another user context")

    def _check_unused(self, wanted: Object) -> None:
        """Raise `Refused` (BAD_RES_STATE) for an object that others name, or whose keys exist."""
        # Firmware says so of PDs, CQs and groups of flows in use (Linux, commit "net/mlx5e: kTLS,
        # Fix protection domain in use syndrome when devlink reload").
        kind, number = wanted
        if kind in _KEPT and (count := self._uses[wanted]):
            raise Refused(Status.BAD_RES_STATE, f"{count} objects use {kind} {number:#x}")
        if kind == PD and self._regions.in_domain(number):
            raise Refused(Status.BAD_RES_STATE, f"there are keys in PD {number:#x}")

    def note(self, data: bytes, output: bytes) -> None:
        """Take note of what a command that succeeded made, changed or ended."""
        opcode, uid = INPUT.get(data, "opcode"), INPUT.get(data, "uid")
        place = OBJECTS.get(opcode)
        if place is None or opcode in _WITHIN:
            return
        wanted = object_at(place, output if place.made else data)
        if name_of(opcode).startswith(_ENDS):
            self._forget(wanted)
            return
        record = self._objects.get(wanted) or _Record(uid, [], _NO_MEMORY)
        named = _named(opcode, data, record.named)
        self._count(record.named, -1)
        self._count(named, 1)
        record.named = named
        if used := self._memory.used:
            self._memory.release([record.memory[part] for part in used if part in record.memory])
            record.memory = {**record.memory, **self._memory.hold()}
        # A driver's keys, which may be very many, need no record.
        if wanted not in self._objects and (named or record.memory or (place.made and uid)):
            self._objects[wanted] = record
            self._made[record.owner] += 1

    def _forget(self, wanted: Object) -> None:
        record = self._objects.pop(wanted, None)
        if record is not None:
            self._made[record.owner] -= 1
            self._count(record.named, -1)
            self._memory.release(record.memory.values())

    def _count(self, named: Iterable[Object], step: int) -> None:
        for each in named:
            self._uses[each] += step
            if not self._uses[each]:
                del self._uses[each]


def _named(opcode: int, data: bytes, before: list[Object]) -> list[Object]:
    """Return which objects one names after a command, of those that must not be ended before it.

    A pair that was made without a domain gets it from RST2INIT_QP. Which keys are in a domain says
    `MemoryRegions`: work requests move them.
    """
    if opcode == Opcode.RST2INIT_QP:
        pd = QPC.get(data, "pd", QP_CONTEXT)
        return [each if each != (PD, 0) else (PD, pd) for each in before]
    if opcode == Opcode.CREATE_MKEY:
        return before
    return [each for each in referred(data) if each[0] in _KEPT] or before
