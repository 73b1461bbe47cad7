"""Requests of all kinds between pages that come and go, on both networks of a ConnectX-5."""

from __future__ import annotations

import random
from collections import Counter
from struct import pack

from bluebridge.device.layout.mlx5.commands import Status
from bluebridge.device.layout.mlx5.cqe import CqeOpcode
from bluebridge.device.layout.mlx5.wqe import SHORT_OPERANDS
from tests.models.mlx5_paged import PAGE, STEP, Paged, content_of, filled
from tests.models.mlx5_pager import PageFault, Pager
from tests.models.mlx5_pair import SendOpcode, opcodes, remote


class Whims:
    """A driver that answers page faults late, in any order, too early, or twice, and takes pages.

    What it takes it gives back with the bytes that the page had.
    """

    def __init__(self, paged: Paged, seed: int) -> None:
        self.paged, self.random = paged, random.Random(seed)
        self.pagers = (paged.here, paged.there)
        self.open: list[tuple[Pager, PageFault]] = []
        self.count = 0

    def turn(self) -> None:
        """Let a little time pass, and do some of what is due."""
        some = self.random
        for pager in self.pagers:
            pager.node.host.run(STEP)
            self.open += [(pager, fault) for fault in pager.faults()]
        while self.open and some.random() < 0.7:
            pager, fault = self.open.pop(some.randrange(len(self.open)))
            if some.random() < 0.9:
                pager.lend(0, pager.count)
            assert pager.resume(fault) is Status.OK
            self.count += 1
            if some.random() < 0.1:
                assert pager.resume(fault) is Status.BAD_PARAM
        if some.random() < 0.15:
            pager = some.choice(self.pagers)
            first = some.randrange(pager.count)
            pager.take(first, some.randint(1, pager.count - first))


def run(network: str, seed: int) -> int:
    """Sixty requests; how many page faults were answered."""
    paged = Paged(packets=network == "packets")
    a, b, here, there = paged.a, paged.b, paged.here, paged.there
    whims, some = Whims(paged, seed), random.Random(seed)
    size = there.count * PAGE // 4
    ours, theirs = content_of(size, seed), bytearray(2 * size)
    filled(here, ours, within=0)
    done = posted = counter = 0
    while done < 60:
        if posted < 60 and posted - done < 8 and some.random() < 0.6:
            length = some.choice((1, 700, PAGE, 5000))
            source = some.randrange(size - length)
            segment = paged.segment(here, length, source)
            content = ours[source : source + length]
            kind = some.randrange(4)
            if kind == 0:
                target = some.randrange(size - length)
                theirs[target : target + length] = content
                a.post(SendOpcode.RDMA_WRITE, remote(there.start + target, there.key) + segment)
            elif kind == 1:
                b.receive(1 << 13, there.key)
                slot = b.rq.address + (b.rq.posted - 1) % 16 * 64
                b.node.host.poke(slot + 8, (there.start + size + posted * 64).to_bytes(8, "big"))
                theirs[size + posted * 64 : size + posted * 64 + length] = content
                a.post(SendOpcode.SEND, segment)
            elif kind == 2:
                place = remote(there.start + 3 * size - 8, there.key)
                if network == "messages" and some.random() < 0.5:  # of 4 bytes, the lower ones
                    add, segment = pack(">II8x", 1, 0), paged.segment(here, 4, 3 * size)
                    a.post(
                        SendOpcode.ATOMIC_MASKED_FA | SHORT_OPERANDS << 24, place + add + segment
                    )
                else:
                    add, segment = pack(">QQ", 1, 0), paged.segment(here, 8, 3 * size)
                    a.post(SendOpcode.ATOMIC_FA, place + add + segment)
                counter += 1
            else:
                place = remote(there.start, there.key) + paged.segment(here, length, 2 * size)
                a.post(SendOpcode.RDMA_READ, place)
            posted += 1
        whims.turn()
        found = a.sent()
        assert opcodes(found) == [CqeOpcode.REQUEST] * len(found)
        done += len(found)
        b.received()
    there.lend(0, there.count)
    assert there.peek(there.start, 2 * size) == theirs
    assert there.peek(there.start + 3 * size - 8, 8) == counter.to_bytes(8, "little")
    return whims.count


def replay(seed: int) -> Counter[str]:
    """Run a seed over both networks; what happened in it."""
    return Counter({"page faults": run("messages", seed) + run("packets", seed)})
