"""Resources of a machine as its blocks, commands and responses describe them; ring entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bluebridge.device.buslog.reader import Event
from bluebridge.device.layout.fields import Struct
from bluebridge.device.layout.ntrdma import commands as layout
from bluebridge.device.layout.ntrdma import port
from bluebridge.device.layout.ntrdma.commands import SEGMENT
from bluebridge.device.layout.ntrdma.port import PEER_INFO
from bluebridge.device.layout.ntrdma.work import (
    COMPLETION,
    FRAME_BUFFER,
    FRAME_COMPLETION,
    PIECE,
    PIECE_SIZE,
    RECV_ENTRY,
    SEND_ENTRY,
    WorkCode,
)
from bluebridge.host_tools.analyzer.ntrdma.memory import Area, Memory, Queue, Region, Segment, Use

MOST_ENTRIES = 1 << 16
"""Entries of one ring at most."""


Entry = tuple[int, bytes | None]
"""Place in the ring and bytes, None when the log has not kept them."""

_WITH_IMMEDIATE = (WorkCode.SEND_IMMEDIATE, WorkCode.WRITE_IMMEDIATE)

MOST_QUEUES = 1 << 12
MOST_PIECES = 1 << 10
WORD = 4


def taken(area: Area, event: Event) -> list[Entry]:
    """Return the entries that a store into a ring completes; the beginning of another is kept."""
    start, length, data = event.address, event.length, event.data
    if area.part and start == area.part_at + len(area.part) and len(data) == length:
        start, data = area.part_at, area.part + data
        length = len(data)
    area.part = b""
    found: list[Entry] = []
    first = -(-(start - area.start) // area.entry)
    last = -(-(start + length - area.start) // area.entry)
    for slot in range(first, min(last, area.capacity)):
        at = area.start + slot * area.entry - start
        entry = data[at : at + area.entry]
        if len(entry) == area.entry:
            found.append((slot, entry))
        elif len(data) < length:
            found.append((slot, None))
        else:
            area.part, area.part_at = entry, start + at
    return found


def segments(command: bytes, start: int, count: int, most: int) -> list[Segment]:
    """Return the segments in a command from byte `start` on; empty when there are too many."""
    if count > most:
        return []
    places = range(start, start + count * SEGMENT.size, SEGMENT.size)
    get = SEGMENT.get
    return [(get(command, "address", at), get(command, "length", at)) for at in places]


@dataclass(slots=True)
class Send:
    """A send entry; `pieces` are tuples of address, length and key.

    `immediate` is the number whose bytes cross in network order, or the key to invalidate.
    """

    op: int
    status: int
    receive: int
    key: int
    length: int
    address: int
    immediate: int
    pieces: list[tuple[int, int, int]]


def send_of(entry: bytes) -> Send:
    """Parse a whole send entry; it has no pieces when it names more than there is room for."""
    get = SEND_ENTRY.get
    count, op = get(entry, "piece_count"), get(entry, "op")
    found = pieces(entry, SEND_ENTRY.size, count)
    immediate = get(entry, "immediate")
    if op in _WITH_IMMEDIATE:
        immediate = int.from_bytes(immediate.to_bytes(4, "little"), "big")
    return Send(
        op,
        get(entry, "status"),
        get(entry, "recv_key"),
        get(entry, "rdma_key"),
        sum(piece[1] for piece in found) if op == WorkCode.READ else get(entry, "rdma_length"),
        get(entry, "rdma_address"),
        immediate,
        found,
    )


def pieces(entry: bytes, start: int, count: int) -> list[tuple[int, int, int]]:
    """Return the pieces of an entry from byte `start` on."""
    if start + count * PIECE_SIZE > len(entry):
        return []
    places = range(start, start + count * PIECE_SIZE, PIECE_SIZE)
    get = PIECE.get
    return [
        (get(entry, "address", at), get(entry, "length", at), get(entry, "key", at))
        for at in places
    ]


def _index(address: int, use: Use, ring: int, queue: Queue | None = None) -> Area:
    return Area(address, WORD, 1, use, queue, ring)


def take_init(sender: Memory, info: bytearray) -> None:
    value = _reader(PEER_INFO, info)
    sender.restart()
    sender.message = value("msi_address"), value("msi_data")
    sender.claim(Area(value("bells"), WORD, min(value("bell_count"), port.DOORBELLS), Use.BELL))
    capacity = min(value("command_capacity"), MOST_ENTRIES)
    responses = Area(value("responses"), layout.RESPONSE_SIZE, capacity, Use.RESPONSES)
    sender.claim(responses)
    sender.claim(_index(value("response_index"), Use.RESPONSE_INDEX, capacity))
    frames = min(value("ethernet_capacity"), MOST_ENTRIES)
    sender.claim(Area(value("ethernet_completions"), FRAME_COMPLETION.size, frames, Use.LENGTHS))
    sender.claim(_index(value("ethernet_consumed"), Use.LENGTH_INDEX, frames))
    sender.name_bell(value("bell_command"), "commands")
    sender.name_bell(value("bell_response"), "responses")
    if frames:
        sender.name_bell(value("ethernet_bell"), "Ethernet frames")


def take_conf(sender: Memory, info: bytearray) -> None:
    value = _reader(PEER_INFO, info)
    commands = Area(value("commands"), layout.COMMAND_SIZE, port.COMMAND_CAPACITY, Use.COMMANDS)
    sender.claim(commands)
    sender.claim(_index(value("command_produced"), Use.COMMAND_INDEX, port.COMMAND_CAPACITY))
    buffers = port.ETHERNET_CAPACITY
    sender.claim(Area(value("ethernet_buffers"), FRAME_BUFFER.size, buffers, Use.BUFFERS))
    sender.claim(_index(value("ethernet_produced"), Use.BUFFER_INDEX, buffers))
    if value("ethernet_buffers"):
        sender.name_bell(value("ethernet_send_bell"), "Ethernet buffers")


def post_buffers(sender: Memory, entries: Sequence[Entry]) -> None:
    """Note empty buffers in the sender's memory, into which the receiver will put frames."""
    for slot, entry in entries:
        if entry is not None:
            sender.post_buffer(slot, FRAME_BUFFER.get(entry, "address"))


def create_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_CREATE, command)
    start, most = layout.CREATE_LIST, layout.CREATE_SEGMENTS
    sender.regions.register(
        Region(
            sender.name,
            value("pd_key"),
            value("key"),
            value("address"),
            value("length"),
            segments(command, start, value("count"), most),
        )
    )


def append_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_APPEND, command)
    start, most = layout.APPEND_LIST, layout.APPEND_SEGMENTS
    found = segments(command, start, value("count"), most)
    sender.regions.append(value("pd_key"), value("key"), found)


def delete_region(sender: Memory, command: bytes) -> None:
    value = _reader(layout.MR_DELETE, command)
    sender.regions.deregister(value("pd_key"), value("key"))


def create_queue(sender: Memory, command: bytes) -> None:
    value = _reader(layout.QP_CREATE, command)
    sends = min(max(1, value("send_capacity")), MOST_ENTRIES), value("send_pieces")
    receives = min(max(1, value("recv_capacity")), MOST_ENTRIES), value("recv_pieces")
    key, bell = value("key"), value("completion_bell")
    known = len(sender.queues) < MOST_QUEUES or key in sender.queues
    if not known or max(sends[1], receives[1]) > MOST_PIECES:
        return
    queue = sender.queues[key] = Queue(sender.name, key, *sends, *receives, bell)
    sender.claim(Area(value("send_completions"), COMPLETION.size, sends[0], Use.COMPLETIONS, queue))
    sender.claim(_index(value("send_consumed"), Use.CONSUMED, sends[0], queue))
    sender.name_bell(bell, "completions")


def modify_queue(sender: Memory, command: bytes) -> None:
    value = _reader(layout.QP_MODIFY, command)
    queue = sender.queues.get(value("key"))
    if queue is not None:
        queue.peer_key = value("peer_key")


def twin(executor: Memory, queue: Queue, response: bytes) -> None:
    """Note the rings of a queue pair's twin, which are in the memory of the twin's creator."""
    value = _reader(layout.KEYED_RESPONSE, response)
    receive = RECV_ENTRY.size + queue.recv_pieces * PIECE_SIZE
    send = SEND_ENTRY.size + queue.send_pieces * PIECE_SIZE
    executor.claim(Area(value("recv_entries"), receive, queue.receives, Use.RECEIVES, queue))
    executor.claim(Area(value("send_entries"), send, queue.sends, Use.SENDS, queue))
    executor.claim(_index(value("recv_produced"), Use.RECEIVE_INDEX, queue.receives, queue))
    executor.claim(_index(value("send_produced"), Use.SEND_INDEX, queue.sends, queue))
    executor.name_bell(value("send_bell"), f"sends of {queue}")


def _reader(table: Struct, data: bytes | bytearray) -> Callable[[str], int]:
    return lambda name: table.get(data, name)
