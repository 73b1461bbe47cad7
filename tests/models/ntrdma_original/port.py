"""The port of version 0.1: states, ping words, blocks, commands and bells (ntrdma_port.c, _cmd.c).

A thread serves it. What the peer does that version 0.1 would not understand ends in `broken`.
"""

from __future__ import annotations

import select
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

from bluebridge.guest.ntrdma.transports.back_end import BackEnd
from tests.models.ntrdma_original.queue_pair import PIECES, Pair, Piece, Region, Ring, Twin

TAG = 0xEC7B5719
BELLS = 0x400
COMMANDS = 0x10
FIRST_BELL = 8
FAILED = 0xFFFFFFFF
PING_SECONDS = 0.2
POLL_SECONDS = 0.05
MISSES = 10
LOST_SECONDS = 7.0
_INIT = struct.Struct("<QIIQIIIIQQIIIIQQII")
_CONF = struct.Struct("<QQQQII")
_QP_CREATE = struct.Struct("<10IQQI")
_QP_NAMES = [
    "op",
    "pd",
    "key",
    "type",
    "recv_capacity",
    "recv_pieces",
    "recv_index",
    "send_capacity",
    "send_pieces",
    "send_index",
    "send_completions",
    "send_consumed",
    "completion_bell",
]
_ADVANCE = {1: (1, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 6), 6: (6,)}
_TOLERATE = {1: range(7), 2: (0, 1), 3: (2,), 4: (3,), 5: (4,), 6: (5,)}


class Original:
    """One end of NTRDMA 0.1. With `start` its rings stand at that index, as after a long life."""

    def __init__(self, back_end: BackEnd, start: int = 0) -> None:
        self.back_end = back_end
        self.lock = threading.Condition(threading.RLock())
        self.broken: BaseException | None = None
        self.regions: dict[int, Region] = {}
        self.pairs: dict[int, Pair] = {}
        self.peer_regions: dict[int, Region] = {}
        self.twins: dict[int, Twin] = {}
        self.ops: list[int] = []
        """The operations of the peer's commands so far."""
        self.meetings = 0
        self.state = 2
        self._start = start
        self._block = back_end.map(144, 64)
        self._bells = back_end.map(4 * BELLS)
        self._commands = Ring(back_end, COMMANDS, 256)
        self._responses = Ring(back_end, COMMANDS, 64)
        self._own_commands = Ring(back_end, COMMANDS, 256)
        self._own_responses = Ring(back_end, COMMANDS, 64)
        self._own_responses.index = self._command_posted = self._command_done = start
        self._executed = 0
        self._waiting: deque[tuple[bytes, Callable[[bytes], None]]] = deque()
        self._sent: deque[Callable[[bytes], None]] = deque()
        self._rung = [0] * BELLS
        self._seen_bells = [0] * BELLS
        self._next_bell = FIRST_BELL
        self._next_key = 0x20
        self._message = (0, 0)
        self._peer_block = self._peer_bells = 0
        self._peer_responses = self._peer_response_index = 0
        self._peer_commands = self._peer_command_index = 0
        self._peer_bell_numbers = (0, 0)
        self._up = self._enabled = self._ending = False
        self._sequence = self._last_seen = self._word = 0
        self._next_ping = self._next_poll = self._changed_at = 0.0
        self._thread = threading.Thread(target=self._run, name="original", daemon=True)
        back_end.open()
        self._thread.start()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending:
            poller = select.poll()
            for descriptor, events in self.back_end.wait_for:
                poller.register(descriptor, events)
            poller.poll(2)
            with self.lock:
                try:
                    self._turn(time.monotonic())
                except BaseException as error:
                    self.broken = error
                    self._ending = True
                self.lock.notify_all()

    def _turn(self, now: float) -> None:
        news = self.back_end.serve()
        assert not news.failed, "stores have failed"
        for up in news.links:
            self._link(up, now)
        if not self._up:
            return
        if now >= self._next_ping:
            self._ping(self.state, now)
        if now >= self._next_poll:
            self._next_poll = now + POLL_SECONDS
            self._poll(now)
        if self._enabled:
            self._serve()
        self.back_end.flush()

    def _serve(self) -> None:
        words = struct.unpack(f"<{BELLS}I", self._bells.view)
        rung = {n for n in range(BELLS) if words[n] != self._seen_bells[n]}
        self._seen_bells = list(words)
        if 0 in rung:
            self._execute()
        if 1 in rung:
            self._take_responses()
        for twin in tuple(self.twins.values()):
            while twin.bell in rung and twin.work():
                pass
        for pair in self.pairs.values():
            if pair.bell in rung:
                pair.collect()
            pair.work()
        self._send_commands()

    # -- for tests ------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
        """Wait for a condition; raises what has broken the port."""
        with self.lock:
            good = self.lock.wait_for(lambda: condition() or self.broken is not None, seconds)
            if self.broken is not None:
                raise AssertionError(f"{what}: {self.broken}") from self.broken
            assert good, f"{what}: not within {seconds} s (state {self.state})"

    def wait_ready(self) -> None:
        """Wait until the peer is there and has answered all commands."""
        self.until(lambda: self._enabled and not self._waiting and not self._sent, "ready")

    def register(self, memory: tuple[int, int], access: int = 7, pieces: int = 1) -> Region:
        """Register address and length as a region of so many segments."""
        address, length = memory
        with self.lock:
            self._next_key += 1
            region = Region(self._next_key, access, address, length, pieces)
            step = length // pieces
            for number in range(pieces):
                rest = step if number < pieces - 1 else length - step * (pieces - 1)
                region.segments.append((address + number * step, rest))
            self.regions[region.key] = region
            if self._enabled:
                self._create_region(region)
        return region

    def create_pair(self) -> Pair:
        """A queue pair in state 0."""
        with self.lock:
            self._next_key += 1
            pair = Pair(self, self._next_key, self._bell(), self._start % 16)
            self.pairs[pair.key] = pair
            if self._enabled:
                self._create_pair(pair)
        return pair

    def connect(self, pair: Pair, peer_key: int, state: int = 4) -> None:
        """Say which queue pair of the peer it talks to, and go to a state."""
        with self.lock:
            pair.peer_key, pair.state, pair.failed = peer_key, state, False
            if self._enabled:
                self._modify_pair(pair)
        self.wait_ready()

    def send(
        self,
        pair: Pair,
        op: int,
        pieces: list[Piece],
        rdma: tuple[int, int] = (0, 0),
        immediate: bytes = bytes(4),
    ) -> None:
        """Post a request, which the thread carries out."""
        with self.lock:
            pair.post_send(pair.posted, op, pieces, rdma, immediate)

    def quiesce(self) -> None:
        """Part from the peer and begin anew."""
        with self.lock:
            self._quiesce(time.monotonic())

    def close(self) -> None:
        """Stop without a word to the peer, as one that dies."""
        self._ending = True
        self._thread.join()
        self.back_end.close()

    def __enter__(self) -> Original:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()
        if kind is None and self.broken is not None:
            raise self.broken

    # -- states ---------------------------------------------------------------------------------

    def _link(self, up: bool, now: float) -> None:
        if up and not self._up:
            self._up = True
            self._word = -1
            self._last_seen = 0
            self._changed_at = now
            self._ping(self.state, now)
        elif not up and self._up:
            self._quiesce(now)
            self._up = False

    def _quiesce(self, now: float) -> None:
        """Send 0, then 1; nothing of this side's is forgotten."""
        self._enabled = False
        for state in (0, 1):
            before, self.state = self.state, state
            self._ping(before, now)
        self._last_seen = 0
        self._waiting.clear()
        self._sent.clear()

    def _ping(self, before: int, now: float) -> None:
        self._next_ping = now + PING_SECONDS
        self._sequence = self._sequence + 1 & 0xFFFF
        word = self.state << 16 | self._sequence
        if not self._up:
            return
        if max(before, self.state) >= 4 and self._peer_block:
            self.back_end.fence()
            self.back_end.imm32(self._peer_block + 4, word)
        if min(before, self.state) <= 5:
            self.back_end.store_spad(0, word)

    def _poll(self, now: float) -> None:
        in_memory = int.from_bytes(self._block.view[4:8], "little")
        word = self.back_end.load_spad(0) if self.state <= 4 else in_memory
        if word != self._word:
            self._word, self._changed_at = word, now
            self._event(word >> 16, now)
        elif now - self._changed_at > LOST_SECONDS and self.state > 2:
            self._quiesce(now)

    def _event(self, theirs: int, now: float) -> None:
        assert theirs <= 6, f"there is no state {theirs}"
        while True:
            lower = self.state > 2 and theirs < self._last_seen
            self._last_seen = theirs
            known = theirs in (*_ADVANCE[self.state], *_TOLERATE[self.state])
            if self.state > 2 and (lower or not known):
                self._quiesce(now)
                return
            if theirs not in _ADVANCE[self.state]:
                return
            if self.state == 6:
                self._enable()
                return
            before = self.state
            self._advance()
            self.state = before + 1
            self._ping(before, now)

    def _advance(self) -> None:
        match self.state:
            case 1:
                self.twins.clear()
                self.peer_regions.clear()
            case 2:
                self.back_end.store_spad(1, 1 | 1 << 16)
                self.back_end.store_spad(2, self._block.address & 0xFFFFFFFF)
                self.back_end.store_spad(3, self._block.address >> 32)
            case 3:
                versions = self.back_end.load_spad(1)
                assert versions >> 16 <= 1 <= versions & 0xFFFF, f"versions {versions:#x}"
                self._peer_block = self.back_end.load_spad(2) | self.back_end.load_spad(3) << 32
                self._begin()
                self._write_init()
            case 4:
                self._take_init()
                self._write_conf()
            case 5:
                self._take_conf()

    def _begin(self) -> None:
        """Bells begin at 0; rings of commands go on where they stand."""
        self._rung = [0] * BELLS
        self._seen_bells = list(struct.unpack(f"<{BELLS}I", self._bells.view))
        self._command_posted = self._command_done = self._own_responses.index

    def _write_init(self) -> None:
        message = self.back_end.message
        values = (
            *(message.address, message.data, 1, self._bells.address, 0, BELLS, COMMANDS),
            *(self._command_done, self._own_responses.address, self._own_responses.index_address),
            *(1, 0, 0, 0, 0, 0, 0, TAG),
        )
        self.back_end.write(self._peer_block + 8, _INIT.pack(*values))
        self.back_end.write(self._peer_block, TAG.to_bytes(4, "little"))
        self.back_end.fence()

    def _take_init(self) -> None:
        data = bytes(self._block.view)
        assert struct.unpack_from("<I", data)[0] == TAG, "no version tag"
        values = _INIT.unpack_from(data, 8)
        assert values[-1] == TAG, "no tag behind the init block"
        assert values[2] == 1 and values[4] == 0 and values[5] == BELLS and values[6] == COMMANDS
        self._message = values[0], values[1]
        self._peer_bells = values[3]
        self._executed = self._commands.index = values[7]
        self._peer_responses, self._peer_response_index = values[8], values[9]
        self._peer_bell_numbers = values[10], values[11]

    def _write_conf(self) -> None:
        values = self._commands.address, self._commands.index_address, 0, 0, 0, TAG
        self.back_end.write(self._peer_block + 104, _CONF.pack(*values))
        self.back_end.fence()

    def _take_conf(self) -> None:
        values = _CONF.unpack_from(self._block.view, 104)
        assert values[-1] == TAG, "no tag behind the conf block"
        self._peer_commands, self._peer_command_index = values[0], values[1]

    def _enable(self) -> None:
        if self._enabled:
            return
        self._enabled = True
        self.meetings += 1
        self.ask(struct.pack("<II", 4, 0))
        for region in self.regions.values():
            self._create_region(region)
        for pair in self.pairs.values():
            self._create_pair(pair)
            if pair.state:
                self._modify_pair(pair)

    # -- publications ---------------------------------------------------------------------------

    def _bell(self) -> int:
        self._next_bell += 1
        return self._next_bell - 1

    def publish(self, index_address: int, index: int, bell: int) -> None:
        """Fence, index, bell, fence, interrupt."""
        back_end = self.back_end
        back_end.fence()
        back_end.imm32(index_address, index)
        self._rung[bell] += 1
        back_end.imm32(self._peer_bells + 4 * bell, self._rung[bell])
        back_end.fence()
        back_end.signal(type(back_end.message)(*self._message))

    # -- own commands ---------------------------------------------------------------------------

    def ask(self, command: bytes, done: Callable[[bytes], None] | None = None) -> None:
        """Send a command; a peer that refuses it breaks the port unless somebody takes that."""
        self._waiting.append((command, done or _succeeded))

    def _send_commands(self) -> None:
        first = self._command_posted
        while self._waiting and len(self._sent) < COMMANDS:
            command, done = self._waiting.popleft()
            self._own_commands.put(self._command_posted, command)
            self._command_posted = self._own_commands.after(self._command_posted)
            self._sent.append(done)
        if first != self._command_posted:
            target = self._peer_commands
            self._own_commands.push(self.back_end, target, first, self._command_posted)
            bell = self._peer_bell_numbers[1]
            self.publish(self._peer_command_index, self._command_posted, bell)

    def _take_responses(self) -> None:
        index = self._own_responses.index
        for _ in range(self._own_responses.count(self._command_done, index)):
            response = self._own_responses.entry(self._command_done)
            self._command_done = self._own_responses.after(self._command_done)
            self._sent.popleft()(response)

    def _create_region(self, region: Region) -> None:
        body = b"".join(struct.pack("<QQ", *segment) for segment in region.segments)
        head = struct.pack("<4IQQII", 8, 0, region.key, region.access, region.address,
                           region.length, region.capacity, len(region.segments))  # fmt: skip
        self.ask(head + body)

    def _create_pair(self, pair: Pair) -> None:
        pair.produced = pair.completed = pair.answers.index = pair.posted
        pair.recv_told = pair.recv_taken
        pair.rings = None
        capacity = pair.sends.capacity
        command = _QP_CREATE.pack(
            *(12, 0, pair.key, 2, capacity, PIECES, pair.recv_taken, capacity, PIECES, pair.posted),
            *(pair.answers.address, pair.answers.index_address, pair.bell),
        )

        def created(response: bytes) -> None:
            _succeeded(response)
            recv, recv_at, send, send_at, bell = struct.unpack_from("<4QI", response, 16)
            pair.rings = recv, recv_at, send, send_at, bell
            pair.tell_receives()

        self.ask(command, created)

    def _modify_pair(self, pair: Pair) -> None:
        self.ask(struct.pack("<6I", 14, 0, pair.key, pair.state, 0, pair.peer_key))

    # -- the peer's commands --------------------------------------------------------------------

    def _execute(self) -> None:
        first, ring = self._executed, self._commands
        for _ in range(ring.count(first, ring.index)):
            command = ring.entry(self._executed)
            self._responses.put(self._executed, self._answer(command))
            self._executed = ring.after(self._executed)
        if first != self._executed:
            self._responses.push(self.back_end, self._peer_responses, first, self._executed)
            bell = self._peer_bell_numbers[0]
            self.publish(self._peer_response_index, self._executed, bell)

    def _answer(self, command: bytes) -> bytes:
        op, domain, key = struct.unpack_from("<3I", command)
        self.ops.append(op)
        assert op <= 14, f"version 0.1 has no command {op}"
        if op == 0:
            return command[:64]
        if op in (4, 5):
            return struct.pack("<3I", op, domain, 0)
        try:
            more = self._carry_out(op, key, command)
        except KeyError:
            return struct.pack("<4I", op, domain, key, FAILED)
        return struct.pack("<4I", op, domain, key, 0) + more

    def _carry_out(self, op: int, key: int, command: bytes) -> bytes:
        """Change what the peer names; `KeyError` when there is no such thing."""
        match op:
            case 8:
                self._take_region(command)
            case 9:
                del self.peer_regions[key]
            case 10:
                self._append_region(command)
            case 12:
                return self._take_pair(command)
            case 13:
                del self.twins[key]
            case 14:
                twin = self.twins[key]
                _, _, _, twin.state, _, twin.peer_key = struct.unpack_from("<6I", command)
            case _:
                raise AssertionError(f"version 0.1 has no command {op}")
        return b""

    def _take_region(self, command: bytes) -> None:
        _, _, key, access, address, length, capacity, count = struct.unpack_from("<4IQQII", command)
        assert key not in self.peer_regions and 0 < count <= min(13, capacity)
        region = self.peer_regions[key] = Region(key, access, address, length, capacity)
        region.segments += [struct.unpack_from("<QQ", command, 40 + 16 * n) for n in range(count)]

    def _append_region(self, command: bytes) -> None:
        _, _, key, capacity, position, count = struct.unpack_from("<6I", command)
        region = self.peer_regions[key]
        assert (capacity, position) == (region.capacity, len(region.segments))
        assert 0 < count <= 14
        region.segments += [struct.unpack_from("<QQ", command, 24 + 16 * n) for n in range(count)]

    def _take_pair(self, command: bytes) -> bytes:
        values = dict(zip(_QP_NAMES, _QP_CREATE.unpack_from(command), strict=True))
        assert values["key"] not in self.twins
        twin = self.twins[values["key"]] = Twin(self, values, self._bell())
        receives, sends = twin.receives, twin.sends
        return struct.pack(
            "<4QI",
            *(receives.address, receives.index_address),
            *(sends.address, sends.index_address, twin.bell),
        )


def _succeeded(response: bytes) -> None:
    op = struct.unpack_from("<I", response)[0]
    status = struct.unpack_from("<I", response, 8 if op in (4, 5) else 12)[0]
    assert status != FAILED, f"the peer refuses command {op}"
