"""Two ends of a reliable connection on one virtual clock, with seeded weather on all they send.

Units are packets in frames, or messages and parts of them: one world, with either network.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bluebridge.device.fabric.messages import Part, Request, Response, Route
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import NO_VLAN
from bluebridge.device.layout.net.roce import (
    ATOMICS,
    DEFAULT_PKEY,
    PSN_MASK,
    BthOpcode,
    Op,
    Syndrome,
    ipv4_gid,
)
from bluebridge.device.packets.carriers import carried
from bluebridge.device.packets.message import WireMessage
from bluebridge.device.packets.reader import PacketReader, Reason
from bluebridge.device.packets.segmentation import opcode_of
from bluebridge.device.packets.transport import TransportPacket, read_transport, write_transport
from bluebridge.device.rdma.connected.packet_receiver import answers_of, requests_in
from bluebridge.device.rdma.connected.packet_receiver import request_of as unit_of
from bluebridge.device.rdma.connected.packet_sender import answers_in, data_of, packets_of
from bluebridge.device.rdma.connected.requester import KEEP, STOP, Limits, Requester, Sending
from bluebridge.device.rdma.connected.responder import Nak, NotPresent, Responder, operate
from bluebridge.device.rdma.vocabulary import CompletionStatus
from bluebridge.device.rdma.work import SendWork
from tests.world.clock import Clock

MTU = 256
NOWHERE = Route(b"", b"", b"", b"")
BURST = 2
PAUSE = 1e-4
"""Most seconds between two bursts of answers."""
KEY = 5
_BTH, _CONGESTION = 42, 4
"""Where the BTH is in a frame, and in the BTH what the ICRC leaves out."""
SIZE = 1 << 16
READABLE, ATOMIC_WORDS = SIZE // 2, SIZE - 64
_OPS = (Op.SEND, Op.SEND_IMM, Op.WRITE, Op.WRITE_IMM, Op.READ, Op.COMPARE_SWAP, Op.FETCH_ADD)
LENDING = (Op.READ, *sorted(ATOMICS & set(_OPS)))
"""Operations whose key is of no use to anybody once they are complete."""


def request_of(
    number: int,
    op: Op,
    length: int = 0,
    *,
    va: int = 0,
    immediate: int = 0,
    operands: tuple[int, int] = (0, 0),
    key: int = KEY,
) -> SendWork:
    """A work request; `operands` of an atomic are what it swaps or adds, and what it compares."""
    work = SendWork(number, op)
    work.length, work.remote_address, work.rkey = length, va, key
    work.immediate, work.atomic = immediate, (*operands, 0, 0)
    return work


def message_bytes(request: SendWork) -> bytes:
    """The payload of a request, which follows from its number."""
    return random.Random(request.index).randbytes(request.length)


class Remote:
    """Memory and receives of the responder's side; `arrived` are the messages that completed.

    `gone` are keys that are not valid any more. Pages may be `absent`.
    """

    def __init__(self) -> None:
        self.gone: set[int] = set()
        self.memory = bytearray(random.Random(1).randbytes(SIZE))
        self.receives = 0
        self.arrived: list[tuple[Op, bytes, int]] = []
        self._room: bytes | None = None
        self.absent: Callable[[], bool] = lambda: False

    def _find_pages(self) -> None:
        if self.absent():
            raise NotPresent

    def choose_srq(self, request: Request) -> None:
        """RC has none to choose."""

    def carried_out(self, op: Op) -> None:
        """Nobody reads the count."""

    def repeat_refused(self) -> None:
        """Nothing counts these here."""

    def check_end(self, request: Request, end: int) -> None:
        if request.op is Op.READ:
            self._check_key(request.rkey)
        else:
            assert request.rkey == KEY and end <= READABLE

    def write(self, request: Request, *, notifies: bool, left: int) -> bool:
        va, data = request.remote_address, b"".join(request.payload)
        self.check_end(request, va + len(data))
        assert len(data) <= MTU * request.packets <= left + MTU * request.packets - len(data)
        self._find_pages()
        if notifies and not self.take_receive():
            return False
        self.memory[va : va + len(data)] = data
        return True

    def read(self, request: Request, offset: int, length: int) -> list[memoryview]:
        va = request.remote_address + offset
        assert va >= READABLE and va + length <= ATOMIC_WORDS and length <= request.packets * MTU
        self._check_key(request.rkey)
        self._find_pages()
        return [memoryview(bytes(self.memory[va : va + length]))]

    def check_present(self, request: Request) -> None:
        self._find_pages()

    def _check_key(self, rkey: int) -> None:
        if rkey in self.gone:
            raise Nak(Syndrome.NAK_REMOTE_ACCESS, None, f"key {rkey} is gone")

    def operate(self, request: Request) -> int:
        self._check_key(request.rkey)
        self._find_pages()
        word = slice(request.remote_address, request.remote_address + 8)
        value = int.from_bytes(self.memory[word], "little")
        new = operate(request.op, value, request.atomic)
        self.memory[word] = new.to_bytes(8, "little")
        return value

    def take_receive(self) -> bool:
        if self._room is not None:
            return True  # its pages were absent
        if not self.receives:
            return False
        self.receives -= 1
        self._room = b""
        return True

    def room(self) -> int:
        return SIZE

    def place(self, request: Request, offset: int, *, ends: bool) -> None:
        data = b"".join(request.payload)
        self._find_pages()
        if self._room is None:  # `Expected` takes none
            self._room = b""
        assert offset == len(self._room) and len(data) <= MTU * request.packets
        self._room += data

    def complete(self, request: Request, length: int) -> None:
        self.arrived.append((request.op, self._room or b"", request.immediate))
        self._room = None
        if request.op is Op.SEND_INV:
            self.gone.add(request.immediate)


@dataclass
class Weather:
    """Chances of what happens to one frame."""

    drop: float = 0.05
    duplicate: float = 0.05
    delay: float = 0.1
    corrupt: float = 0.03
    absent: float = 0.05
    """Of pages that a unit or its answer needs."""


CALM = Weather(0, 0, 0, 0, 0)


class Connection:
    """The two ends; `results` are what each read or atomic brought; all ended at `ended`.

    Networks derive from it: how a unit goes out, and what is `refused` of what came.
    """

    refused = corrupted = 0

    def __init__(
        self, seed: int, responder_mtu: int, weather: Weather | None, limits: Limits
    ) -> None:
        self.random = random.Random(seed)
        self.weather = weather or Weather()
        self.clock = Clock()
        self.ended = 0.0
        self._timer = 0
        first = (PSN_MASK - seed % 40) & PSN_MASK  # PSNs wrap in most runs
        self.remote = Remote()
        self.remote.absent = self._absent
        self._pages = random.Random(-seed)
        self.page_faults = 0
        self.requester = Requester(limits, first)
        self.responder = Responder(responder_mtu, first, self.remote, depth=4)
        self.completed: list[tuple[int, CompletionStatus | None]] = []
        self.results: dict[int, bytearray] = {}
        self.when_complete: Callable[[SendWork], None] = lambda request: None
        self.most_in_air = self._in_air = 0

    def _send_unit(self, request: SendWork, data: bytes) -> None:
        """Send the unit that the requester gave out."""
        raise NotImplementedError

    def post(self, request: SendWork) -> None:
        self.requester.post(request)
        self._act()

    def _act(self) -> None:
        requester = self.requester
        while (request := requester.next_unit()) is not None:
            offset, length = self._stretch(request)
            if self._absent():
                requester.suspend(request)
                self.clock.after(self._pages.random() * 1e-3, self._resume)
                break
            data = b"" if request.returns_data else message_bytes(request)[offset:][:length]
            self._send_unit(request, data)
        while requester.done:
            request = requester.done.popleft()
            status = CompletionStatus(request.status) if request.status else None
            self.completed.append((request.index, status))
            self.ended = self.clock.now
            self.clock.after(0.0, partial(self.when_complete, request))
        seconds = requester.watch()
        if seconds != KEEP:
            self._timer += 1
            if seconds != STOP:
                self.clock.after(seconds, partial(self._expired, self._timer))

    def _absent(self) -> bool:
        """Whether pages are absent that are needed now."""
        found = self._pages.random() < self.weather.absent
        self.page_faults += found
        return found

    def _answer_is_lost(self) -> bool:
        """Whether an answer cannot be stored, since its pages are absent."""
        if not self._absent():
            return False
        self.requester.suspend_answer()
        self.clock.after(self._pages.random() * 1e-3, self._resume)
        return True

    def _resume(self) -> None:
        self.requester.resume()
        self._act()

    def _stretch(self, request: SendWork) -> tuple[int, int]:
        """Offset and length of the unit that was given out."""
        offset = self.requester.index * MTU
        return offset, min(self.requester.packets * MTU, request.length - offset)

    def _expired(self, timer: int) -> None:
        if timer == self._timer:
            self.requester.expired()
            self._act()

    def _keep(self, request: SendWork, offset: int, data: bytes) -> None:
        room = self.results.setdefault(request.index, bytearray(request.length))
        room[offset : offset + len(data)] = data

    def _fates(self) -> Iterator[float]:
        """How late each copy of what is sent arrives; 0 for one that is on time."""
        weather, chance = self.weather, self.random.random
        for _ in range(2 if chance() < weather.duplicate else 1):
            if chance() >= weather.drop:
                self._in_air += 1
                self.most_in_air = max(self.most_in_air, self._in_air)
                yield chance() * 1e-3 if chance() < weather.delay else 0.0


class Link(Connection):
    """A connection by packets.

    `times` are those of `frames`, `expired` the places in `frames` at which the requester had
    waited for an answer in vain.
    """

    def __init__(
        self, seed: int, weather: Weather | None = None, limits: Limits | None = None
    ) -> None:
        part = (1, 3, 32)[seed % 3]
        limits = limits or Limits(mtu=MTU, window=32, reads=4, part=part)
        super().__init__(seed, MTU, weather, limits)
        self._answering = False
        self.readers = PacketReader(), PacketReader()
        self.frames: list[bytes] = []
        self.times: list[float] = []
        self.expired: list[int] = []
        self.sent: list[TransportPacket] = []
        self.longest_run = 0
        self._together: list[bytes] = []

    def _send_unit(self, request: SendWork, data: bytes) -> None:
        packets = _apart(packets_of(self.requester, request, data))
        self.sent += packets
        self._send(packets, to_responder=True)

    def _expired(self, timer: int) -> None:
        if timer == self._timer and self.requester.state is Sending.OPEN:
            self.expired.append(len(self.frames))
        super()._expired(timer)

    def _answer(self) -> None:
        self._answering = False
        self._send(_apart(self.answers(BURST)), to_responder=False)
        if self.responder.stalled:
            self.responder.stalled = False
            self._answering = True
            self.clock.after(self._pages.random() * 1e-3, self._answer)
        elif self.responder.busy:
            self._answering = True
            self.clock.after(self.random.random() * PAUSE, self._answer)

    def _send(self, packets: list[TransportPacket], *, to_responder: bool) -> None:
        """Carry a burst: what is not late arrives together."""
        self._together = together = list[bytes]()
        for packet in packets:
            self._carry(packet, to_responder=to_responder)
        self.clock.after(1e-5, partial(self._arrive, together, to_responder))

    def _carry(self, packet: TransportPacket, *, to_responder: bool) -> None:
        ends = [ipv4_gid(bytes((10, 0, 0, 1 + side))) for side in (0, 1)]
        source, target = ends if to_responder else reversed(ends)
        addresses = WireMessage(
            What.REQUEST, 0, b"", source_qpn=0x49, target_qpn=0x4A, source=bytes(6),
            destination=bytes(6), sgid=source, dgid=target, vlan=NO_VLAN, hop_limit=64, form=2,
        )  # fmt: skip
        frame = carried(addresses, write_transport(packet, 0x4A, DEFAULT_PKEY)).data
        self.frames.append(frame)
        self.times.append(self.clock.now)
        for late in self._fates():
            sent = frame
            if self.random.random() < self.weather.corrupt:
                sent, self.corrupted = self._damaged(frame), self.corrupted + 1
            if late:
                self.clock.after(1e-5 + late, partial(self._arrive, [sent], to_responder))
            else:
                self._together.append(sent)

    def _damaged(self, frame: bytes) -> bytes:
        """The frame with one bit turned over behind the UDP header, where only the ICRC looks."""
        size = int.from_bytes(frame[38:40], "big") - 8  # what UDP carries
        place = self.random.choice([place for place in range(size) if place != _CONGESTION])
        damaged = bytearray(frame)
        damaged[_BTH + place] ^= 1 << self.random.randrange(8)
        return bytes(damaged)

    def _arrive(self, frames: list[bytes], to_responder: bool) -> None:
        """Take frames in order; packets that go on with the one before them are a run with it."""
        self._in_air -= len(frames)
        reader, at = self.readers[to_responder], 0
        while at < len(frames):
            wire = reader.read(frames[at])
            at += 1
            if wire is None:
                continue
            more = reader.follow(wire, frames, at)
            at += len(more)
            self.longest_run = max(self.longest_run, 1 + len(more))
            packet = read_transport(wire)
            packet.more = more
            if to_responder:
                self.ask(packet)
                if not self._answering:
                    self._answer()
            else:
                for answer in answers_in(self.requester, packet):
                    self._take_answer(answer)
                self._act()

    def ask(self, packet: TransportPacket) -> None:
        """Give a request to the responder."""
        for each in requests_in(self.responder, packet):
            self.responder.receive(unit_of(each, MTU))

    def answers(self, most: int) -> list[TransportPacket]:
        """Packets of answers that are due."""
        return answers_of(self.responder, self.remote, MTU, most)

    def _take_answer(self, packet: TransportPacket) -> None:
        requester, brings = self.requester, packet.opcode != BthOpcode.RC_ACK
        if not requester.expects(packet.psn):
            return
        request = requester.receive(packet.psn, 1, packet.syndrome, brings=brings)
        if request is None:
            return
        data = data_of(requester, request, packet)
        if self._answer_is_lost():
            return
        if data is None:
            requester.fail(CompletionStatus.BAD_RESP_ERR)
        else:
            self._keep(request, ((packet.psn - request.psn) & PSN_MASK) * MTU, data)
            requester.stored(1 + len(packet.more))

    @property
    def refused(self) -> int:  # type: ignore[override]
        """Frames that either end did not take for a packet."""
        return sum(sum(reader.refused.values()) for reader in self.readers)

    @property
    def icrc_errors(self) -> int:
        """Frames that only the ICRC told apart from a packet."""
        return sum(reader.refused[Reason.ICRC] for reader in self.readers)


class MessageLink(Connection):
    """A connection by messages; those of more than 1,000 bytes go in parts of some packets.

    `carried` counts what was sent.
    """

    def __init__(self, seed: int) -> None:
        limits = Limits(mtu=MTU, window=1 << 24, reads=4, packets=False, whole=1000)
        limits.retries = 1000  # each gap costs one, and weather makes many
        limits.part = (1, 3, 32)[seed % 3]
        super().__init__(seed, 0, None, limits)
        self.carried = 0

    def _send_unit(self, request: SendWork, data: bytes) -> None:
        requester, part = self.requester, None
        offset, length = self._stretch(request)
        if request.length > requester.limits.whole:
            last = requester.index + requester.packets == request.packets
            rest, begins = request.packets - requester.index, not offset or not requester.first
            part = Part(offset, request.length, rest, begins, last)
        unit = Request(
            Op(request.operation),
            NOWHERE,
            0,
            0,
            (request.psn + requester.index) & PSN_MASK,
            requester.packets,
            length,
            [memoryview(data)] if data else (),
            request.remote_address + offset,
            request.rkey,
            request.immediate,
            atomic=request.atomic,
            part=part,
        )
        self._carry(self._ask, unit)

    def _carry(self, take: Callable[[Any], None], message: Request | Response) -> None:
        self.carried += 1
        for late in self._fates():
            self.clock.after(1e-5 + late, partial(take, replace(message)))

    def _ask(self, request: Request) -> None:
        self._in_air -= 1
        self.responder.receive(request)
        while (answer := self.responder.next_answer()) is not None:
            done = answer.request
            response = Response(
                NOWHERE, 0, answer.psn, answer.syndrome, answer.msn, answer.data, answer.original
            )
            if done is not None:
                response.packets, response.part = done.packets, done.part
                response.read = answer.reads
            self._carry(self._take_answer, response)

    def _take_answer(self, response: Response) -> None:
        self._in_air -= 1
        requester, original = self.requester, response.atomic_original
        if not requester.expects(response.psn):
            return
        brings = response.read or original is not None or len(response.payload) > 0
        request = requester.receive(
            response.psn, response.packets, response.syndrome, brings=brings
        )
        if request is not None:
            offset, length, packets = 0, request.length, request.packets
            if length > requester.limits.whole:
                (offset, length), packets = self._stretch(request), requester.packets
            data = (
                b"".join(response.payload) if original is None else original.to_bytes(8, "little")
            )
            if self._answer_is_lost():
                pass
            elif len(data) == length:
                self._keep(request, offset, data)
                requester.stored(packets)
            else:
                requester.fail(CompletionStatus.BAD_RESP_ERR)
        self._act()


def _apart(runs: list[TransportPacket]) -> list[TransportPacket]:
    return [packet for run in runs for packet in run.apart()]


def random_request(number: int, source: random.Random) -> SendWork:
    """A request of any kind; reads and atomics have memory that no WRITE changes, and own keys."""
    op, length = source.choice(_OPS), source.choice((0, 1, 255, 256, 257, 700, 3000))
    if op in ATOMICS:
        va = ATOMIC_WORDS + 8 * source.randrange(8)
        operands = source.getrandbits(64), source.getrandbits(64)
        return request_of(number, op, 8, va=va, operands=operands, key=KEY + 1 + number)
    if op is Op.READ:
        va = source.randrange(READABLE, ATOMIC_WORDS - 3000)
        return request_of(number, op, length, va=va, key=KEY + 1 + number)
    va = source.randrange(READABLE - 3000)
    immediate = number if op in (Op.SEND_IMM, Op.WRITE_IMM) else 0
    return request_of(number, op, length, va=va, immediate=immediate)


class Expected:
    """The promises of verbs for requests carried out once each, in the order they were posted."""

    def __init__(self, requests: list[SendWork]) -> None:
        remote = Remote()
        self.arrived = remote.arrived
        self.memory = remote.memory
        self.results: dict[int, bytes] = {}
        for request in requests:
            self._carry_out(remote, request)

    def _carry_out(self, remote: Remote, request: SendWork) -> None:
        memory, op, va = remote.memory, Op(request.operation), request.remote_address
        end = va + request.length
        if op in (Op.SEND, Op.SEND_IMM, Op.SEND_INV):
            self.arrived.append((op, message_bytes(request), request.immediate))
        elif op is Op.READ:
            self.results[request.index] = bytes(memory[va:end])
        elif op in ATOMICS:
            operand, compare, _, _ = request.atomic
            unit = unit_of(
                TransportPacket(opcode_of(op, 0, 1), 0, va=va, operand=operand, compare=compare),
                MTU,
            )
            self.results[request.index] = remote.operate(unit).to_bytes(8, "little")
        else:
            memory[va:end] = message_bytes(request)
            if op is Op.WRITE_IMM:
                self.arrived.append((op, b"", request.immediate))


def run(seed: int, weather: Weather | None = None) -> Link:
    """The same by packets."""
    link = Link(seed, weather)
    rage(link, seed)
    return link


def rage(link: Connection, seed: int, count: int = 14) -> None:
    """A run of random requests in bad weather, compared with what the verbs promise.

    Who has read, or has carried out an atomic, gives the key back at once, as nvme targets do, or
    tells its owner, who lets it go a moment later.
    """
    source = random.Random(seed)
    requests = [random_request(number, source) for number in range(count)]
    coming = iter(requests)
    posted: list[SendWork] = []

    def post(request: SendWork) -> None:
        request.index = len(posted)
        posted.append(request)
        link.post(request)

    def more_receives() -> None:
        link.remote.receives += 1

    def give_back(request: SendWork) -> None:
        key = request.rkey
        if request.operation not in LENDING:
            return
        more_receives()
        if source.random() < 0.5:
            post(request_of(0, Op.SEND_INV, 16, immediate=key))
        else:
            post(request_of(0, Op.SEND, 16))
            link.clock.after(source.random() * 1e-3, lambda: link.remote.gone.add(key))

    link.when_complete = give_back
    for _ in range(count):
        link.clock.after(source.random() * 0.02, more_receives)
        link.clock.after(source.random() * 0.005, lambda: post(next(coming)))
    link.clock.run_all()
    expected = Expected(posted)
    assert link.completed == [(number, None) for number in range(len(posted))]
    assert link.remote.arrived == expected.arrived
    assert link.remote.memory == expected.memory
    assert link.results == expected.results
    assert link.refused == link.corrupted
    assert link.most_in_air < 400


def lost_once(link: Link, *places: int) -> None:
    """Lose the packets of the whole run with these places, counted from 0."""
    original, seen = link._carry, [0]

    def carry(packet: TransportPacket, *, to_responder: bool) -> None:
        place, seen[0] = seen[0], seen[0] + 1
        if place not in places:
            original(packet, to_responder=to_responder)

    link._carry = carry  # type: ignore[method-assign]


def replay(seed: int) -> Counter[str]:
    """Run a seed over both networks; what happened in it."""
    link, messages = run(seed), MessageLink(seed)
    rage(messages, seed)
    return Counter(
        {
            "frames": len(link.frames),
            "damaged": link.corrupted,
            "of them found by the ICRC": link.icrc_errors,
            "messages": messages.carried,
            "page faults": link.page_faults + messages.page_faults,
        }
    )
