"""BlueFlame over the socket: the guest's driver, rightly and with the first drivers' mistakes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

from bluebridge.device.buslog.reader import Event, LogReader
from bluebridge.device.layout.blueflame import LINE
from bluebridge.device.layout.buslog import Kind, What
from bluebridge.device.layout.events import Fact
from bluebridge.device.layout.mlx4.uar import PAGE_SIZE, RESERVED_UARS, SEND_DOORBELL, UAR_AREA_SIZE
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.guest.drivers.common.blueflame import BlueFlameUse
from bluebridge.guest.drivers.common.health import HcaError
from bluebridge.guest.drivers.hca.context import open_hca
from bluebridge.guest.verbs import SendWr, WcStatus, WrOpcode
from bluebridge.host_tools.vfio_user.bus import SocketBus
from bluebridge.host_tools.vfio_user.connection import NO_REPLY
from tests.models.players import Player
from tests.models.server import functions
from tests.wire.conftest import StartServer

INLINE = 220
ON = BlueFlameUse()
WRONG_PAGE = BlueFlameUse(wrong_page=True)
OLD_SIZE_RULE = BlueFlameUse(old_size_rule=True)
PAGE = UAR_AREA_SIZE + RESERVED_UARS * PAGE_SIZE
"""The BlueFlame page of the driver's UAR."""

FETCH = "a read 48 SQ_WQE"
ARRIVAL = ["b write 4 PAYLOAD", "a write 32 CQE"]


class Lab:
    """A server that advertises BlueFlame, if it shall, and what its bus log holds."""

    def __init__(self, start: StartServer, folder: Path, *words: str) -> None:
        self._folder = folder
        log = ("--log", str(folder / "log"))
        self.server = start("device", *functions(folder), *log, *words)

    def posts(
        self,
        use: BlueFlameUse | None,
        requests: Sequence[SendWr],
        kind: type[SocketBus] = SocketBus,
    ) -> list[list[Event]]:
        """Post requests one after the other; what crossed both buses for each. Ends the server."""
        buses = [kind(self._folder / name) for name in "ab"]
        with open_hca(buses[0], blueflame=use) as first, open_hca(buses[1]) as second:
            a, b = Player(first, inline=INLINE), Player(second)
            a.connect(b)
            b.connect(a)
            b.view[:1024] = bytes(range(256)) * 4
            for request in requests:
                request.remote_addr, request.rkey = b.address, b.mr.rkey
                if request.opcode == WrOpcode.RDMA_READ:
                    request.sg_list = [a.sge(0, 64)]
                a.qp.post_send(request)
                a.expect(WcStatus.SUCCESS)
                if request.inline_data is not None:
                    data = bytes(request.inline_data)
                    assert bytes(b.view[: len(data)]) == data
                else:
                    assert bytes(a.view[:64]) == bytes(b.view[:64])
        for bus in buses:
            bus.close()
        assert self.server.terminate() == 0
        return list(_by_post(LogReader(self._folder / "log")))


class LineBus(SocketBus):
    """A bus whose stores to a line of a BlueFlame page reach the server together."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._waiting = b""

    def write64(self, bar: int, offset: int, value: int) -> None:
        """Keep a store until its line is whole."""
        if offset < UAR_AREA_SIZE:
            super().write64(bar, offset, value)
            return
        body = struct.pack("<QII", offset, bar, 8) + value.to_bytes(8, "big")
        self._waiting += self.client.pack(VfioUserCommand.REGION_WRITE, body, flags=NO_REPLY)
        if (offset + 8) % LINE == 0:
            self.client.send(self._waiting)
            self._waiting = b""


def _by_post(log: LogReader) -> list[list[Event]]:
    """The events from each first store of a post to its completion."""
    posts: list[list[Event]] = []
    open_ = False
    for event in log:
        begins = event.device == "a" and event.kind == Kind.MMIO_WRITE and is_send(event)
        if begins and not open_:
            posts.append([])
            open_ = True
        if open_:
            posts[-1].append(event)
            open_ = not (event.kind == Kind.DMA_WRITE and event.what == What.CQE)
    return posts


def is_send(event: Event) -> bool:
    """Whether the access is one by which software sends."""
    return event.bar == 2 and (
        event.address >= UAR_AREA_SIZE or event.address % PAGE_SIZE == SEND_DOORBELL
    )


def on_bus(events: list[Event]) -> list[str]:
    """Return what a bus analyzer in both machines would show, stores of a kind counted."""
    words = [f"{event.device} {text}" for event in events if (text := _word(event))]
    counted = ((text, len(list(same))) for text, same in groupby(words))
    return [text if count == 1 else f"{text} x{count}" for text, count in counted]


def _word(event: Event) -> str:
    if event.kind == Kind.MMIO_WRITE:
        return f"store {event.length}" if event.address >= UAR_AREA_SIZE else "doorbell"
    if event.kind in (Kind.DMA_READ, Kind.DMA_WRITE):
        way = "read" if event.kind == Kind.DMA_READ else "write"
        return f"{way} {event.length} {event.what.name}"
    return ""


def stores(events: list[Event]) -> list[int]:
    """Where in BAR2 the entry was stored."""
    return [event.address for event in events if _word(event).startswith("store")]


def notes(events: list[Event]) -> list[tuple[int, str]]:
    """The pages of entries that were fetched in place of sent, and why."""
    found = [each.values for each in events if each.fact is Fact.BLUEFLAME_REFUSED]
    return [(told["page"], told["reason"]) for told in found]


def write(length: int) -> SendWr:
    """An inline RDMA WRITE; its entry has 32 bytes and the data with a head in each line."""
    data = bytes((length + at) & 0xFF for at in range(length))
    return SendWr(1, WrOpcode.RDMA_WRITE, inline_data=data)


@pytest.fixture
def lab(start_server: StartServer, tmp_path: Path) -> Lab:
    """A server with BlueFlame."""
    return Lab(start_server, tmp_path, "--blueflame", "on")


def test_a_send_is_the_write_of_its_lines_and_no_read(lab: Lab) -> None:
    """Figure 4.6 of the study: a write of 64 bytes, the payload, the completion."""
    sizes = (4, 28, 29, 88, 89, 148, 149, 208)
    posts = lab.posts(ON, [write(size) for size in sizes])
    lines = [8, 8, 16, 16, 24, 24, 32, 32]
    for post, size, count in zip(posts, sizes, lines, strict=True):
        arrival = [f"b write {size} PAYLOAD", "a write 32 CQE"]
        assert on_bus(post) == [f"a store 8 x{count}", *arrival], (size, notes(post))
        assert notes(post) == []
        # As in the figure: opcode 8 (RDMA WRITE) and index, number of the queue pair and size.
        (entry,) = [event for event in post if event.kind == Kind.BLUEFLAME]
        head, size_word = entry.data[:4], entry.data[4:8]
        assert head == bytes((0, 0, sizes.index(size), 8))
        assert size_word == (entry.obj << 8 | entry.length // 16).to_bytes(4, "big")
        first = next(event for event in post if event.kind == Kind.MMIO_WRITE)
        assert first.data == entry.data[:8]
    starts = [stores(post)[0] for post in posts]
    assert starts == [PAGE, PAGE + 256] * 4  # the two buffers in turn


def test_the_log_has_each_store_of_lines_that_arrive_whole(lab: Lab) -> None:
    sizes = (4, 28, 29, 88, 149, 208)
    posts = lab.posts(ON, [write(size) for size in sizes], LineBus)
    for post, size, count in zip(posts, sizes, (8, 8, 16, 16, 32, 32), strict=True):
        arrival = [f"b write {size} PAYLOAD", "a write 32 CQE"]
        assert on_bus(post) == [f"a store 8 x{count}", *arrival], (size, notes(post))
        start = stores(post)[0]
        assert stores(post) == list(range(start, start + 8 * count, 8))
        (entry,) = [event for event in post if event.kind == Kind.BLUEFLAME]
        written = b"".join(event.data for event in post if event.address in stores(post))
        assert written.startswith(entry.data[: entry.length])


def test_without_the_switch_everything_is_a_doorbell(lab: Lab) -> None:
    (post,) = lab.posts(None, [write(4)])
    assert on_bus(post) == ["a doorbell", FETCH, *ARRIVAL]
    (fetch,) = [event for event in post if event.kind == Kind.DMA_READ]
    assert post[0].data == (fetch.obj << 8).to_bytes(4, "big")  # figure 4.5: 00 00 49 00


def test_the_wrong_page_means_a_fetch(lab: Lab) -> None:
    """Figure 4.5: the entry is written, then read all the same; the data arrive rightly."""
    posts = lab.posts(WRONG_PAGE, [write(4), write(4)])
    for post in posts:
        assert on_bus(post) == ["a store 8 x8", FETCH, *ARRIVAL]
        ((page, why),) = notes(post)
        assert page == 0 and why.endswith(f" is {RESERVED_UARS}")
    assert [stores(post)[0] for post in posts] == [UAR_AREA_SIZE, UAR_AREA_SIZE + 256]


@pytest.mark.parametrize(
    ("use", "largest"), [(ON, 208), (OLD_SIZE_RULE, 192)], ids=["<= 256", "< 256"]
)
def test_the_size_rule(lab: Lab, use: BlueFlameUse, largest: int) -> None:
    """Section 3.3: 192 bytes of data and 48 of heads are 240, of 256 that the buffer has."""
    below, above = lab.posts(use, [write(largest), write(largest + 1)])
    arrival = f"b write {largest} PAYLOAD"
    assert on_bus(below) == ["a store 8 x32", arrival, "a write 32 CQE"]
    (entry,) = [event.length for event in below if event.kind == Kind.BLUEFLAME]
    assert entry == (256 if use is ON else 240)
    assert on_bus(above)[0] == "a doorbell"


def test_what_goes_through_blueflame(lab: Lab) -> None:
    """As in libmlx4: reads do, messages without data do not."""
    read, empty = lab.posts(ON, [SendWr(1, WrOpcode.RDMA_READ), write(0)])
    assert on_bus(read) == ["a store 8 x8", "b read 64 PAYLOAD", "a write 64 PAYLOAD", ARRIVAL[1]]
    assert on_bus(empty) == ["a doorbell", FETCH, ARRIVAL[1]]


@pytest.mark.parametrize(("size", "largest"), [(256, 88), (1024, 448)])
def test_the_edge_follows_the_advertised_register(
    start_server: StartServer, tmp_path: Path, size: int, largest: int
) -> None:
    lab = Lab(start_server, tmp_path, "--blueflame", "on", "--blueflame-size", str(size))
    edge = min(largest, INLINE)
    first, second, *more = lab.posts(ON, [write(edge), write(4), write(INLINE)])
    assert (stores(first)[0], stores(second)[0]) == (PAGE, PAGE + size // 2)
    assert (on_bus(more[0])[0] == "a doorbell") == (largest < INLINE)


def test_a_device_without_blueflame_is_refused(start_server: StartServer, tmp_path: Path) -> None:
    Lab(start_server, tmp_path)
    bus = SocketBus(tmp_path / "a")
    with pytest.raises(HcaError, match="start it with --blueflame on"):
        open_hca(bus, blueflame=ON)
    bus.close()
