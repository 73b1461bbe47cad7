"""A mix of work of every kind over one connection, and what is to come of it."""

from __future__ import annotations

from random import Random
from struct import pack, unpack

from bluebridge.device.layout.mlx4.cqe import CompletionStatus
from tests.models.rdma_node import Pair, SendOpcode, Wc, data, inline, remote

WORK = 40
BATCH = 8
SLOTS = 8
SLOT = 64
COUNTER = 0x800
CONSTANT = 0x1000
"""Where in B's memory the counter of atomics is, and what nobody changes."""

KINDS = ("send", "write", "write with immediate", "read", "add")
DISTURBED = (CompletionStatus.TRANSPORT_RETRY_EXC_ERR, CompletionStatus.RNR_RETRY_EXC_ERR)


class Traffic:
    """`WORK` entries posted by A in batches; `sent` and `received` are the completions."""

    def __init__(self, pair: Pair, random: Random) -> None:
        self.pair, self._random = pair, random
        self._local, self._key = pair.a.memory(1 << 15)
        self._target, self._rkey = pair.b.memory(1 << 13)
        self._inbox, self._inbox_key = pair.b.memory(1 << 13)
        pair.b.host.poke(self._target + CONSTANT, random.randbytes(4096))
        self.kinds = [random.choice(KINDS) for _ in range(WORK)]
        self.sent: list[Wc] = []
        self.received: list[Wc] = []
        self._receives = 0

    def run(self, seconds: float = 3.0) -> None:
        """Post everything and wait for it, at most so long."""
        posted = 0
        while len(self.sent) < WORK and seconds > 0:
            while posted < WORK and posted - len(self.sent) < BATCH:
                self._post(posted)
                posted += 1
            self.pair.run(0.002)
            seconds -= 0.002
            self.sent += self.pair.a.completions(self.pair.qa)
            self.received += self.pair.b.completions(self.pair.qb)

    def _post(self, index: int) -> None:
        pair, kind = self.pair, self.kinds[index]
        slot = index % SLOTS
        at = remote(self._target + slot * SLOT, self._rkey)
        text = f"{index:06}".encode()
        local = data((self._key, self._local + index * SLOT, SLOT))
        if kind == "send":
            self._receive()
            pair.a.post_send(pair.qa, SendOpcode.SEND_IMM, inline(text), immediate=index)
        elif kind == "write":
            pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE, at + inline(text))
        elif kind == "write with immediate":
            self._receive()
            pair.a.post_send(pair.qa, SendOpcode.RDMA_WRITE_IMM, at + inline(text), immediate=index)
        elif kind == "read":
            at = remote(self._target + CONSTANT + index * SLOT, self._rkey)
            pair.a.post_send(pair.qa, SendOpcode.RDMA_READ, at + local)
        else:
            at = remote(self._target + COUNTER, self._rkey)
            local = data((self._key, self._local + index * SLOT, 8))
            pair.a.post_send(pair.qa, SendOpcode.ATOMIC_FA, at + pack(">QQ", 1, 0) + local)

    def _receive(self) -> None:
        place = self._inbox + self._receives * SLOT
        self.pair.b.post_recv(self.pair.qb, [(self._inbox_key, place, SLOT)])
        self._receives += 1

    # -- what is to be true of it -------------------------------------------------------------

    def check(self) -> bool:
        """Whether all arrived; otherwise the connection must have ended as it should."""
        done = sum(wc.status == 0 for wc in self.sent)
        assert [wc.index for wc in self.sent] == list(range(len(self.sent)))
        failed = [wc.status for wc in self.sent[done:]]
        assert done == WORK or failed[0] in DISTURBED
        assert all(status == CompletionStatus.WR_FLUSH_ERR for status in failed[1:])
        self._check_receives(done)
        self._check_answers(done)
        if done == WORK:
            self._check_slots()
        return done == WORK

    def _check_receives(self, done: int) -> None:
        """Each message with a receive arrived once, in order, at least those that A knows of."""
        taking = [n for n, kind in enumerate(self.kinds) if kind in ("send", KINDS[2])]
        arrived = [wc.immediate for wc in self.received if wc.status == 0]
        assert arrived == taking[: len(arrived)]
        assert len(arrived) >= sum(n < done for n in taking)
        for place, index in enumerate(arrived):
            if self.kinds[index] == "send":
                text = self.pair.b.host.peek(self._inbox + place * SLOT, 6)
                assert text == f"{index:06}".encode()

    def _check_answers(self, done: int) -> None:
        """Reads brought what is there, and the n-th atomic found n."""
        host, added = self.pair.a.host, 0
        for index, kind in enumerate(self.kinds[:done]):
            got = host.peek(self._local + index * SLOT, SLOT)
            if kind == "read":
                place = self._target + CONSTANT + index * SLOT
                assert got == self.pair.b.host.peek(place, SLOT)
            elif kind == "add":
                assert unpack("<Q", got[:8]) == (added,)
                added += 1
        (counter,) = unpack("<Q", self.pair.b.host.peek(self._target + COUNTER, 8))
        assert added <= counter <= sum(kind == "add" for kind in self.kinds)
        assert done < WORK or counter == added

    def _check_slots(self) -> None:
        for slot in range(SLOTS):
            writers = [n for n in range(slot, WORK, SLOTS) if self.kinds[n] in KINDS[1:3]]
            expected = f"{writers[-1]:06}".encode() if writers else bytes(6)
            assert self.pair.b.host.peek(self._target + slot * SLOT, 6) == expected
