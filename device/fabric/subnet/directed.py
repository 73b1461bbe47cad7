"""Directed routes through a switch: the port an SMP leaves by, and the hop noted in it.

Rules: InfiniBand vol. 1, 14.2.2 (C14-9 and C14-13); the other side is Linux `core/smi.c`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from bluebridge.device.layout.ib.link import PERMISSIVE_LID
from bluebridge.device.layout.ib.smp import DIRECTION, MAX_HOPS, SMP

_INITIAL = SMP.field("initial_path").offset
_RETURN = SMP.field("return_path").offset


class Fate(Enum):
    """The ways in which a switch can treat an SMP."""

    HERE = auto()  # for the switch's own agent
    PORT = auto()  # out of a port, to the other end of its cable
    LID = auto()  # on by LID: the directed part is over
    DROP = auto()


class Step(NamedTuple):
    """The next step of an SMP: its fate, the port or LID, its bytes with the hop noted."""

    fate: Fate
    where: int = 0
    smp: bytes = b""


DROPPED = Step(Fate.DROP)


def arrive(smp: bytes, ingress: int) -> Step:
    """Return the next step of an SMP that came in at port `ingress`."""
    get = SMP.get
    pointer, count = get(smp, "hop_pointer"), get(smp, "hop_count")
    if count >= MAX_HOPS:
        return DROPPED
    packet = bytearray(smp)
    if get(smp, "status") & DIRECTION:
        return _back(packet, pointer, count)
    if pointer < count:
        if pointer:
            packet[_RETURN + pointer] = ingress
        SMP.set(packet, "hop_pointer", pointer + 1)
        return Step(Fate.PORT, packet[_INITIAL + pointer + 1], bytes(packet))
    if pointer > count + 1:
        return DROPPED
    if pointer == count:
        if count:
            packet[_RETURN + pointer] = ingress
        SMP.set(packet, "hop_pointer", pointer + 1)
    target = get(smp, "dr_dlid")
    if target == PERMISSIVE_LID:
        return Step(Fate.HERE, 0, bytes(packet))
    return Step(Fate.LID, target, bytes(packet))


def reply(smp: bytes) -> Step:
    """Return the next step of an answer that the switch itself gives."""
    packet = bytearray(smp)
    SMP.set(packet, "status", SMP.get(smp, "status") | DIRECTION)
    count = SMP.get(smp, "hop_count")
    if not count:
        target = SMP.get(smp, "dr_slid")
        return DROPPED if target == PERMISSIVE_LID else Step(Fate.LID, target, bytes(packet))
    SMP.set(packet, "hop_pointer", count)
    return Step(Fate.PORT, packet[_RETURN + count], bytes(packet))


def _back(packet: bytearray, pointer: int, count: int) -> Step:
    if not 1 <= pointer <= count + 1:
        return DROPPED
    SMP.set(packet, "hop_pointer", pointer - 1)
    if pointer > 1:
        return Step(Fate.PORT, packet[_RETURN + pointer - 1], bytes(packet))
    target = SMP.get(packet, "dr_slid")
    return DROPPED if target == PERMISSIVE_LID else Step(Fate.LID, target, bytes(packet))
