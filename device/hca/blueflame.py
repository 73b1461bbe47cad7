"""BlueFlame: send entries that software stores into the adapter, so that it need not fetch them.

A buffer is half a register; software stores an entry there in ascending order, in whole lines of
64 bytes, after it wrote the same bytes to its ring (rdma-core `providers/mlx4/qp.c:
mlx4_post_send`, Linux `mlx4/en_tx.c: mlx4_en_tx_write_desc`). Dword 0 then holds the index of the
entry too, dword 1 the number of the queue pair. Whatever is not as it should be is treated as a
doorbell: adapters fetch the entry then, also when the page is not that of the queue pair.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from device.hca.send_queue import SendQueue
from device.layout.buslog import Kind
from device.layout.mlx4.uar import BLUEFLAME_LINE, PAGE_SIZE, UAR_AREA_SIZE
from device.layout.mlx4.wqe import DS_MASK
from device.throttle import Throttle

if TYPE_CHECKING:
    from device.hca.device import Hca

HEAD = Struct(">II")
INDEX_MASK = 0xFFFF


class BlueFlame:
    """The BlueFlame pages of one HCA. Each collects one entry at a time."""

    def __init__(self, hca: Hca) -> None:
        self._hca = hca
        self._buffer = hca.config.features.blueflame_buffer
        self._open: dict[int, tuple[int, bytearray]] = {}  # by page: buffer, what came so far
        self._oddities = Throttle()

    def reset(self) -> None:
        """Forget entries that are half there."""
        self._open.clear()

    def write(self, offset: int, data: bytes) -> None:
        """A store at `offset` behind the UAR pages."""
        page, place = divmod(offset, PAGE_SIZE)
        buffer, position = place & -self._buffer, place & (self._buffer - 1)
        begun = self._open.get(page)
        if position == 0:
            if begun is not None:
                self._give_up(page, begun[1], "a new entry begins")
            begun = self._open[page] = (buffer, bytearray())
        elif begun is None:
            return  # the rest of something that was given up
        collected = begun[1]
        if begun[0] != buffer or len(collected) != position:
            self._give_up(page, collected, f"a store at {place:#x} is out of order")
            return
        collected += data
        if not len(collected) & (BLUEFLAME_LINE - 1):
            self._look(page, buffer, collected)
        elif len(collected) > self._buffer:
            self._give_up(page, collected, "a store crosses the end of the buffer")

    def _look(self, page: int, buffer: int, collected: bytearray) -> None:
        """After a whole line: perhaps the entry is complete."""
        length = (collected[7] & DS_MASK) * 16
        if not length or length > self._buffer:
            self._give_up(page, collected, f"an entry of {length} bytes")
        elif len(collected) >= length:
            del self._open[page]
            self._push(page, buffer, bytes(collected[:length]))

    def _push(self, page: int, buffer: int, entry: bytes) -> None:
        """Hand an entry to its queue, if it is the one that is due there."""
        word0, word1 = HEAD.unpack_from(entry)
        qpn = word1 >> 8
        qp = self._hca.qps.get(qpn)
        queue = None if qp is None else qp.sq
        if qp is None or queue is None:
            self._odd(f"BlueFlame page {page}: QP {qpn:#x} has no send queue", qpn)
        elif qp.uar != page:
            self._fetch(queue, qpn, f"QP {qpn:#x} belongs to page {qp.uar}, not {page}")
        elif queue.accepts(word0 >> 31, word0 >> 8 & INDEX_MASK):
            address = UAR_AREA_SIZE + page * PAGE_SIZE + buffer
            self._hca.bus.note_dma(Kind.BLUEFLAME, address, len(entry), entry, queue.what, qpn)
            queue.push(entry)
        else:
            queue.ring()  # often it was fetched while its stores were on their way

    def _give_up(self, page: int, collected: bytearray, reason: str) -> None:
        """An entry that is not well formed is fetched from the ring, if it says from which."""
        self._open.pop(page, None)
        if len(collected) < HEAD.size:
            self._odd(f"BlueFlame page {page}: {reason}", 0)
            return
        qpn = HEAD.unpack_from(collected)[1] >> 8
        qp = self._hca.qps.get(qpn)
        if qp is not None and qp.sq is not None:
            self._fetch(qp.sq, qpn, reason)

    def _fetch(self, queue: SendQueue, qpn: int, reason: str) -> None:
        self._odd(f"BlueFlame: {reason}: fetched instead", qpn)
        queue.ring()

    def _odd(self, text: str, qpn: int) -> None:
        """Note what should not happen; of a flood only some."""
        if self._oddities.admits():
            self._hca.bus.note(Kind.NOTE, f"{text} ({self._oddities.count} so far)", obj=qpn)
