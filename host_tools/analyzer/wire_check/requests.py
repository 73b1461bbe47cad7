"""The sender of requests: PSN after PSN, or back to one that was not acknowledged (go-back-N)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from bluebridge.device.layout.net.roce import MTU_BYTES, PSN_MASK, UNRELIABLE_SERVICE, BthOpcode
from bluebridge.host_tools.analyzer.wire_check import rules
from bluebridge.host_tools.analyzer.wire_check.causes import Cause, Causes, GoBack
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation, broken, later
from bluebridge.host_tools.analyzer.wire_check.standing import Standing

KEPT: Final = 1 << 15
"""The most packets of a flow that are remembered."""
_READS: Final = 256
_ANSWERS: Final = 128
_MTUS: Final = frozenset(MTU_BYTES.values())


@dataclass(slots=True)
class Sent:
    """A request packet by its PSN, and the times of its last transmission and of the one after."""

    packet: tuple[int, ...]
    time: int
    followed: int = 0


@dataclass(slots=True)
class Read:
    """A READ request, sent at `time`: its answers have `span` PSNs from `psn` on."""

    psn: int
    span: int
    length: int
    time: int


class Requests:
    """The requests to one queue pair, from the first packet of the record on, which is `seen`.

    `pmtu` is the path MTU, 0 until a packet has shown it; `first` the PSN from which on all packets
    are known, `next` that of the next new packet; `nak` PSN, time and kind of the NAK to which the
    sender has not gone back yet; `acknowledged` the last PSN of which an answer has shown that it
    arrived.
    """

    def __init__(self, seen: Seen, causes: Causes) -> None:
        self.qpn = seen.qpn
        self.pmtu = 0
        self.sent: dict[int, Sent] = {}
        self.reads: deque[Read] = deque(maxlen=_READS)
        self.first = self.next = self._cursor = seen.packet.psn
        self.nak: tuple[int, int, Cause] | None = None
        self.acknowledged: int | None = None
        self.standing = Standing(seen.time)
        self._causes = causes
        self._progress = 0  # The time of the last answer that acknowledged something new
        self._answers: deque[tuple[int, int]] = deque(maxlen=_ANSWERS)  # Times and PSNs
        self._ends: list[int | Read] = []  # Last PSNs of messages, until `standing` is decided
        self._message: int | None = None  # The opcode that began the message that is being sent
        # False behind packets that are not known, until a message begins
        self._sure = False
        self._bytes = self._total = 0
        self._open: Read | None = None  # Its span is not known: no packet has shown the path MTU
        if seen.packet.opcode in rules.MIDDLES | rules.LASTS:
            self.standing.whole = False

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next request packet; yields what it breaks."""
        packet = seen.packet
        psn = packet.psn
        self._close(psn)
        ahead = later(psn, self._cursor)
        if ahead > 0:
            yield from self._ahead(seen, ahead)
        elif ahead < 0 and packet.service != UNRELIABLE_SERVICE:
            self._back(seen)
        if later(psn, self.next) >= 0:
            yield from self._begin(seen)
        elif (known := self.sent.get(psn)) is not None:
            if (contents := _contents(seen)) != known.packet:
                same = contents[:-1] == known.packet[:-1]
                yield broken(seen, Rule.REWRITTEN if same else Rule.RESENT)
            known.time, known.followed = seen.time, 0
        before = self.sent.get((psn - 1) & PSN_MASK)
        if before is not None and not before.followed:
            before.followed = seen.time
        span = self._span(seen)
        self._cursor = (psn + span) & PSN_MASK
        if later(self._cursor, self.next) > 0:
            self.next = self._cursor

    def begins_anew(self, seen: Seen) -> bool:
        """Return True if a packet is the first of another connection of the same queue pair.

        Its message begins there, and its PSN is far from any that this connection has used.
        """
        if seen.packet.opcode in rules.MIDDLES | rules.LASTS:
            return False
        return not -KEPT < later(seen.packet.psn, self.next) < KEPT

    def learn(self, mtu: int) -> None:
        """Take the path MTU, if it is one, and with it how many answers a READ has."""
        if not self.pmtu and mtu in _MTUS:
            self.pmtu = mtu
        if self._open is not None and self.pmtu:
            self._spans(self._open, -(-self._open.length // self.pmtu))

    def _ahead(self, seen: Seen, ahead: int) -> Iterator[Violation]:
        """Take a packet in front of which some are missing: those that arrived are not due."""
        psn = seen.packet.psn
        if not self._is_acknowledged(psn - 1):
            skipped = broken(seen, Rule.SKIP, f"{ahead} after the one before")
            if seen.packet.service == UNRELIABLE_SERVICE:
                yield skipped
            else:
                yield from self.standing.judge(skipped)
        if later(psn, self.next) > 0:
            self._sure, self._message = False, None

    def _close(self, psn: int) -> None:
        """Learn how many answers a READ has from the PSN behind it."""
        if self._open is not None:
            span = later(psn, self._open.psn)
            if any(-(-self._open.length // mtu) == span for mtu in _MTUS):
                self._spans(self._open, span)
            self._open = None

    def _spans(self, read: Read, span: int) -> None:
        read.span, self._open = span, None
        self._cursor = (read.psn + span) & PSN_MASK
        if later(self._cursor, self.next) > 0:
            self.next = self._cursor

    def _begin(self, seen: Seen) -> Iterator[Violation]:
        """Hold a new packet against the message that it is a part of."""
        packet, opcode = seen.packet, seen.packet.opcode
        if not self._in_order(opcode):
            yield broken(seen, Rule.ORDER)
            self._message = None
        if opcode in rules.FIRSTS:
            self._message, self._bytes, self._total = opcode, 0, packet.length
        if opcode in rules.FIRSTS or opcode in rules.MIDDLES:
            self.learn(len(packet.payload))
        if not self._right_size(opcode, len(packet.payload)):
            yield broken(seen, Rule.SIZE, f"{len(packet.payload)} bytes")
        if opcode in rules.LASTS:
            self._message = None
        self.sent[packet.psn] = Sent(_contents(seen), seen.time)
        self.forget(len(self.sent) - KEPT)

    def forget(self, count: int) -> None:
        """Forget the oldest packets, so many of them."""
        for oldest in list(islice(self.sent, max(0, count))):
            del self.sent[oldest]
            self.first = (oldest + 1) & PSN_MASK

    def _in_order(self, opcode: int) -> bool:
        """Return True if a packet goes on with the message that was begun, or begins one."""
        if opcode not in rules.MIDDLES and opcode not in rules.LASTS:
            self._sure = True
            return self._message is None
        if not self._sure:
            return True
        writes, begun = rules.WRITES, self._message
        return begun is not None and (opcode in writes) == (begun in writes)

    def _right_size(self, opcode: int, size: int) -> bool:
        self._bytes += size
        if opcode in rules.FIRSTS or opcode in rules.MIDDLES:
            return size == self.pmtu != 0
        if self.pmtu and size > self.pmtu:
            return False
        if opcode not in rules.LASTS:
            return True
        wrong = opcode in rules.WRITES and self._bytes != self._total
        return size > 0 and not (self._sure and wrong)

    def _span(self, seen: Seen) -> int:
        packet, read = seen.packet, None
        if packet.opcode == BthOpcode.RC_READ_REQUEST:
            span = -(-packet.length // self.pmtu) if self.pmtu else 0
            read = Read(packet.psn, max(1, span), packet.length, seen.time)
            self.reads.append(read)
            if not self.pmtu and packet.length > min(_MTUS):
                self._open = read
        ends = packet.opcode not in rules.FIRSTS and packet.opcode not in rules.MIDDLES
        if ends and later(packet.psn, self.next) >= 0 and self.standing.whole is None:
            self._ends.append(packet.psn if read is None else read)
            if len(self._ends) > _READS:
                self.standing.whole = False
        return 1 if read is None else read.span

    # -- going back -----------------------------------------------------------------------------

    def _back(self, seen: Seen) -> None:
        psn, when, detection = seen.packet.psn, seen.time, None
        known, read = self.sent.get(psn), self.inside_read(psn)
        last = max(known.time if known else 0, read.time if read else 0)
        asked = read is not None or self.is_atomic(psn)
        found, since = None, 0
        if self.nak is not None and self.nak[0] == psn:
            _, since, found = self.nak
        elif asked and (shown := self._answered_beyond(seen, last)) is not None:
            found, since = Cause.IMPLIED, shown
        quiet = max(last, self._progress) if last and self._progress else None
        cause = self._causes.of(seen, found, last, quiet)
        if cause is not found:
            since = last or when
        elif cause is Cause.NAK and known is not None and known.followed:
            detection = max(0, since - known.followed)
        self.nak = None
        self._causes.add(GoBack(seen.number, when, self.qpn, psn, cause, when - since, detection))

    def _answered_beyond(self, seen: Seen, last: int) -> int | None:
        """Return when an answer behind a packet came, which was sent at `last`; None: none did.

        One that was under way when the packet was sent again may have come behind it, too. That
        is certain only of an adapter that would tell of a time-out.
        """
        psn, before = seen.packet.psn, None
        for time, answered in self._answers:
            if later(answered, psn) > 0:
                if time >= last:
                    return time
                before = time
        return before if seen.function in self._causes.telling else None

    # -- answers --------------------------------------------------------------------------------

    def answered(self, seen: Seen, last: int) -> None:
        """Take an answer, which acknowledges all PSNs up to `last`."""
        self._answers.append((seen.time, seen.packet.psn))
        if self.acknowledged is None or later(last, self.acknowledged) > 0:
            self.acknowledged, self._progress = last, seen.time

    def completed(self, psn: int) -> int:
        """Return how many messages of the record are over with a PSN."""
        ends = (each.psn + each.span - 1 if isinstance(each, Read) else each for each in self._ends)
        return sum(later(end, psn) <= 0 for end in ends)

    def decide(self, *, whole: bool) -> Iterator[Violation]:
        """Take whether the record holds the connection from its beginning."""
        self._ends.clear()
        return self.standing.decide(whole=whole)

    def _is_acknowledged(self, psn: int) -> bool:
        return self.acknowledged is not None and later(psn, self.acknowledged) <= 0

    def is_hidden(self, psn: int) -> bool:
        """Return True if what was sent with a PSN is not known: it was before the record."""
        return later(psn, self.first) < 0

    def inside_read(self, psn: int) -> Read | None:
        """Return the newest READ of which a PSN is an answer's, None if there is none."""
        if not self.reads or later(psn, self.next) >= 0:
            return None
        found = (each for each in reversed(self.reads) if 0 <= later(psn, each.psn) < each.span)
        return next(found, None)

    def is_atomic(self, psn: int) -> bool:
        """Return True if an atomic operation was sent with this PSN."""
        known = self.sent.get(psn)
        return known is not None and known.packet[0] in rules.ATOMICS

    def was_sent(self, psn: int) -> bool:
        """Return True if a packet with this PSN was sent."""
        return -KEPT < later(psn, self.next) < 0

    def may_be_answered(self, psn: int) -> bool:
        """Return True if an answer with this PSN is one to a request that was sent."""
        return psn in self.sent or self.inside_read(psn) is not None


def _contents(seen: Seen) -> tuple[int, ...]:
    """Return what stays the same of a packet that is sent again; its bytes are last."""
    packet, payload = seen.packet, bytes(seen.packet.payload)
    return packet.opcode, packet.va, packet.length, packet.rkey, len(payload), hash(payload)
