"""The responder: acknowledgements, NAKs and the answers to READs and atomic operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bluebridge.device.layout.net.roce import MTU_BYTES, PSN_MASK, BthOpcode, Syndrome
from bluebridge.host_tools.analyzer.wire_check import rules
from bluebridge.host_tools.analyzer.wire_check.causes import Cause
from bluebridge.host_tools.analyzer.wire_check.requests import Read, Requests
from bluebridge.host_tools.analyzer.wire_check.rules import Rule, Seen, Violation, broken, later

_FIRST: Final = (BthOpcode.RC_READ_RESPONSE_FIRST, BthOpcode.RC_READ_RESPONSE_ONLY)
_LAST: Final = (BthOpcode.RC_READ_RESPONSE_LAST, BthOpcode.RC_READ_RESPONSE_ONLY)
_WITH_MSN: Final = (*_FIRST, _LAST[0], BthOpcode.RC_ACK, BthOpcode.RC_ATOMIC_ACK)


class Answers:
    """The answers to the requests to one queue pair."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self._acknowledged: int | None = None
        self._nak: int | None = None
        self._rnr: int | None = None
        self._msn: tuple[int, int] | None = None  # PSN and MSN of the farthest answer
        self._cursor: int | None = None  # The PSN of the next answer to the READ being answered
        self._read: Read | None = None
        self._reading = False  # False until the first answer to a READ: it may be any of them

    def take(self, seen: Seen) -> Iterator[Violation]:
        """Take the next answer; yields what it breaks."""
        yield from self._whole(seen)
        for found in self._broken(seen):
            yield from self.requests.standing.judge(found)

    def _whole(self, seen: Seen) -> Iterator[Violation]:
        """Find out whether the record begins with the connection, from what an answer counts.

        The MSN counts all messages of the connection. Responders differ in when they count a READ,
        so that answers to one prove only that it does.
        """
        packet, requests = seen.packet, self.requests
        if requests.standing.whole is not None or packet.syndrome >> 5:
            return
        if packet.opcode in _LAST or packet.opcode in (BthOpcode.RC_ACK, BthOpcode.RC_ATOMIC_ACK):
            whole = packet.msn == requests.completed(packet.psn)
            if whole or packet.opcode == BthOpcode.RC_ACK:
                yield from requests.decide(whole=whole)

    def _broken(self, seen: Seen) -> Iterator[Violation]:
        opcode = seen.packet.opcode
        if opcode in _WITH_MSN:
            psn, msn = seen.packet.psn, seen.packet.msn
            if self._msn is None or later(psn, self._msn[0]) >= 0:  # no kept answer of an atomic
                if self._msn is not None and later(msn, self._msn[1]) < 0:
                    yield broken(seen, Rule.MSN_BACK, f"{msn} after {self._msn[1]}")
                self._msn = psn, msn
        if opcode in rules.RESPONSES:
            yield from self._response(seen)
        elif opcode == BthOpcode.RC_ATOMIC_ACK:
            requests, psn = self.requests, seen.packet.psn
            if not requests.is_atomic(psn) and not requests.is_hidden(psn):
                yield broken(seen, Rule.ATOMIC_UNASKED)
        else:
            yield from self._acknowledgement(seen)
        self.requests.answered(seen, (seen.packet.psn - (seen.packet.syndrome >> 5 > 0)) & PSN_MASK)

    def _acknowledgement(self, seen: Seen) -> Iterator[Violation]:
        packet, requests = seen.packet, self.requests
        psn, kind = packet.psn, packet.syndrome >> 5
        if packet.syndrome == Syndrome.NAK_PSN:
            if not requests.was_sent(psn):
                yield broken(seen, Rule.NAK_NOTHING)
            if self._nak == psn:
                yield broken(seen, Rule.NAK_TWICE)
            if self._rnr == psn:
                yield broken(seen, Rule.NAK_AFTER_RNR)
            else:
                requests.nak = psn, seen.time, Cause.NAK
            self._nak = psn
        elif kind == Syndrome.RNR_NAK >> 5:
            known = requests.sent.get(psn)
            if known is not None and known.packet[0] not in rules.TAKES_RECEIVE:
                yield broken(seen, Rule.RNR_NO_RECEIVE)
            self._rnr = psn
            requests.nak = psn, seen.time, Cause.RNR
        else:
            if not requests.was_sent(psn):
                yield broken(seen, Rule.ACK_UNSENT)
            if not kind:
                yield from self._progress(seen)

    def _progress(self, seen: Seen) -> Iterator[Violation]:
        psn = seen.packet.psn
        if self._acknowledged is not None and later(psn, self._acknowledged) < 0:
            yield broken(seen, Rule.ACK_BACK)
        else:
            self._acknowledged = psn
        if self._rnr is not None and later(psn, self._rnr) >= 0:
            self._rnr = None

    def _response(self, seen: Seen) -> Iterator[Violation]:
        packet, requests = seen.packet, self.requests
        psn, size = packet.psn, len(packet.payload)
        hidden, known = requests.is_hidden(psn), self._reading
        self._reading = True
        if packet.opcode not in _LAST:
            requests.learn(size)
        if packet.opcode in _FIRST:
            self._read = next((each for each in reversed(requests.reads) if each.psn == psn), None)
            if self._read is None and not hidden:
                yield broken(seen, Rule.READ_UNASKED)
        elif psn != self._cursor:
            resumed = any(each.psn == psn for each in requests.reads)
            if known and not hidden:
                yield broken(seen, Rule.READ_RESUMED if resumed else Rule.READ_ORDER)
            self._read = requests.inside_read(psn)
        if self._read is not None and not self._has_size(packet.opcode, psn, self._read, size):
            yield broken(seen, Rule.READ_SIZE, f"{size} bytes")
        self._cursor = None if packet.opcode in _LAST else (psn + 1) & PSN_MASK

    def _has_size(self, opcode: int, psn: int, read: Read, size: int) -> bool:
        """Return whether an answer has the length of its place, as far as the path MTU is known."""
        mtu, before = self.requests.pmtu, later(psn, read.psn)
        if opcode not in _LAST:
            return size == mtu != 0
        if before and not mtu:
            return 0 < size <= max(MTU_BYTES.values())
        return before * mtu + size == read.length
