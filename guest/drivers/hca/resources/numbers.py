"""Numbers of objects (QPN, CQN, PD, memory keys), and how many there may be."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from random import Random, SystemRandom

from bluebridge.device.layout.mlx4.capabilities import QUERY_DEV_CAP
from bluebridge.guest.errors import VerbsError


@dataclass(slots=True, frozen=True)
class Profile:
    """The sizes of the context tables, as powers of two.

    The default is small (a laboratory needs hundreds of objects, not hundreds of thousands), so all
    of it is mapped at start; Linux maps pieces on demand.
    """

    log_qps: int = 10
    log_srqs: int = 7
    log_cqs: int = 9
    log_eqs: int = 7
    log_mpts: int = 12
    log_mtts: int = 17


DEFAULT = Profile()


_SPECIAL_QPS = 8
_GSI_OFFSET = 2
_QPN_BITS = 23
_MPT_BITS = 24
_PD_BITS = 15
_KEY_BITS = 8


class Numbers:
    """Hands out numbers `first … 2^log-1`, with a generation above bit `log` as Linux does.

    The generation, up to `width` bits in all, tells a stale number from one in use again
    (core/alloc.c: mlx4_bitmap_alloc). With `width == log` there is none. Numbers return to the
    end of the queue, so that one is reused as late as possible. With `chance`, number and
    generation of the first one are drawn: peers cannot tell them from those of another device.
    """

    def __init__(
        self,
        what: str,
        first: int,
        log: int,
        width: int | None = None,
        chance: Random | None = None,
    ) -> None:
        self._what = what
        self._log = log
        self._limit = (1 << (log if width is None else width)) - 1
        self._free = deque(range((1 << log) - 1, first - 1, -1))
        if chance is not None:
            generation = chance.randrange(self._limit + 1) >> log << log
            self._free = deque(generation | number for number in self._free)
            self._free.rotate(chance.randrange(len(self._free)))
        self._lock = threading.Lock()

    def allocate(self) -> int:
        """Return a free number; `VerbsError` when all are in use."""
        with self._lock:
            if not self._free:
                raise VerbsError(f"no more {self._what} numbers: all {1 << self._log} are in use")
            return self._free.pop()

    def free(self, number: int) -> None:
        """Give a number back."""
        with self._lock:
            self._free.appendleft((number + (1 << self._log)) & self._limit)


class NumberSpaces:
    """The numbers of one device, without those that it reserves according to QUERY_DEV_CAP.

    `special_qps` is the first of the eight special queue pairs. A memory region's number under
    `mpt_mask` is without its generation: the index of its MPT entry. What peers see, numbers of
    queue pairs and memory keys, is drawn by `chance`.
    """

    def __init__(self, dev_cap: bytes, profile: Profile, chance: Random | None = None) -> None:
        def reserved(name: str) -> int:
            return 1 << QUERY_DEV_CAP.get(dev_cap, f"log_reserved_{name}")

        self._chance = chance = chance or SystemRandom()
        self.special_qps = -(-reserved("qps") // _SPECIAL_QPS) * _SPECIAL_QPS
        first_qpn = self.special_qps + _SPECIAL_QPS
        self.queue_pairs = Numbers("queue pair", first_qpn, profile.log_qps, _QPN_BITS, chance)
        self.completion_queues = Numbers("CQ", reserved("cqs"), profile.log_cqs)
        self.shared_receive_queues = Numbers("SRQ", reserved("srqs"), profile.log_srqs)
        # Event queues share doorbell pages with the UARs that the device keeps for itself.
        first_eqn = max(reserved("eqs"), 4 * QUERY_DEV_CAP.get(dev_cap, "reserved_uars"))
        self.event_queues = Numbers("EQ", first_eqn, profile.log_eqs)
        self.mpt_mask = (1 << profile.log_mpts) - 1
        first_mpt = reserved("mrws")
        self.regions = Numbers("memory region", first_mpt, profile.log_mpts, _MPT_BITS, chance)
        first_pd = max(1, QUERY_DEV_CAP.get(dev_cap, "reserved_pds"))
        self.protection_domains = Numbers("protection domain", first_pd, _PD_BITS)

    def key_byte(self) -> int:
        """Return the low byte of a new memory key."""
        return self._chance.getrandbits(_KEY_BITS)

    def gsi_qpn(self, port: int) -> int:
        """Return the special queue pair number that is QP1 of a port, from 1 on."""
        return self.special_qps + _GSI_OFFSET + port - 1
