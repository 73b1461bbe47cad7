"""The send engine of Ethernet queue pairs, with checksums, tags and large sends.

Frames and completions of one walk of the ring leave together: a burst costs the receiver one
event, and the sender one. Linux `en_tx.c: mlx4_en_xmit, mlx4_en_process_tx_cq`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.frames.sending import tagged, with_checksums
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.net.ethernet import HEADER_SIZE, MIN_FRAME
from bluebridge.device.pci.bus import DmaError
from bluebridge.device.rdma.memory.region import AccessError
from bluebridge.device.rdma.pairs.costs import COPY_COST, COST_LIMIT, FRAME_COST
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.pairs.unconnected_sender import UnconnectedSender
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.vocabulary import LARGE_SEND, NOP, CompletionStatus
from bluebridge.device.rdma.work import FrameWork, SendWork, WorkError

MAX_SEND: Final = 1 << 19
"""Largest payload of one large send in bytes, as Linux may ask for it (`GSO_MAX_SIZE`)."""
MAX_SEGMENTS: Final = 8192
BURST: Final = 128
"""Number of frames after which a burst is sent, so that the receiver's processor starts early."""

Returns = Callable[[Port, FrameWork, bytes], tuple[bool, bool]]
"""Function that says whether a sent frame goes back to its port only, and whether there and out."""


class EthernetSender(UnconnectedSender):
    """The send engine of one Ethernet queue pair; an RSS queue pair has an idle one.

    A frame may have `most` bytes, as the adapter says, and `returns` which frames come back.

    `_rest` are bursts of a large send that wait for the next turn: its share of time was over.
    The burst goes to the wire, or (`_loop`) back to the port; with `_also_back` to both. `_left`
    is the monotonic time in ns at which the last burst left, 0 if none has since the last `finish`.
    """

    __slots__ = (
        "_address", "_also_back", "_collected", "_frames", "_left", "_loop", "_most", "_rest",
        "_returns", "_trains",
    )  # fmt: skip

    def __init__(self, qp: QueuePair, most: int, returns: Returns) -> None:
        super().__init__(qp)
        self._most = most
        self._returns = returns
        self._address = b""
        self._loop = False
        self._also_back = False
        self._frames = 0
        self._left = 0
        self._trains: list[Train] = []
        self._rest: deque[Train] = deque()
        self._collected = False

    def execute(self, work: SendWork) -> None:
        """Send one entry, or complete it in error; `finish` follows at the end of the walk."""
        try:
            if work.operation != NOP:
                self._send(work)
        except WorkError as error:
            self.refuse(work.index, error)
        except (AccessError, DmaError) as fault:
            self.finish()
            self._fail(work.index, CompletionStatus.LOCAL_PROT_ERR, fault)
        else:
            if work.signalled:
                self._collected = True
                self._qp.completions.collect_send(work.index, work.operation, work.length)

    def refuse(self, index: int, error: WorkError) -> None:
        """Complete an entry that makes no sense in error, after those before it."""
        self.finish()
        self._fail(index, error.status, error)

    def blocked(self) -> bool:
        """Return True while the port pauses or a large send goes on; the queue runs afterwards."""
        flow, queue = self._qp.port.flow, self._qp.sq
        if flow.paused and queue is not None:
            flow.wait(self._qp.qpn, queue.run)
            return True
        if self._rest:
            self._send_rest()
            return bool(self._rest)
        return False

    def finish(self) -> None:
        """Send the burst: frames first, then the completions of their entries."""
        if self._trains:
            self._send_burst()
        # Entries complete in order, so all wait for a large send that is not out yet.
        if self._collected and not self._rest:
            self._collected = False
            self._qp.completions.post_collected(self._left)
        self._left = 0

    def stop(self) -> None:
        """Forget all frames that were not sent, and the completions that were collected."""
        self._trains, self._frames = [], 0
        self._collected = False
        self._qp.completions.forget_collected()
        self._rest.clear()

    def abort(self) -> None:
        """Drop what is left of a large send; its entry completes as a success."""
        if self._rest:
            self._rest.clear()
            self.finish()

    def _send_burst(self) -> None:
        trains, self._trains, self._frames = self._trains, [], 0
        port, loop = self._qp.port, self._loop
        self._left = monotonic_ns()
        own = self._qp.qpn if loop else -1
        copies = port.send_frames(Frames(self._address, trains, own), loop=loop)
        if self._also_back:
            copies += port.return_frames(Frames(self._address, trains, self._qp.qpn))
        self._qp.spent += COPY_COST * copies

    def _send_rest(self) -> None:
        """Send bursts of a large send, as many as the queue's share of time allows."""
        qp, rest = self._qp, self._rest
        while rest and qp.spent < COST_LIMIT:
            train = rest.popleft()
            qp.spent += FRAME_COST * len(train.frames)
            self._trains.append(train)
            self._send_burst()

    def _send(self, work: SendWork) -> None:
        if not isinstance(work, FrameWork):
            raise WorkError("no frame")
        train = self._segments(work) if work.operation == LARGE_SEND else self._frame(work)
        frames = train.frames
        address = frames[0][:6]
        loop, back = self._returns(self._qp.port, work, frames[0])
        large = len(frames) > BURST
        way = address, loop, back
        if large or self._frames >= BURST or way != (self._address, self._loop, self._also_back):
            self.finish()
            self._address, self._loop, self._also_back = way
        if large:
            for start in range(0, len(frames), BURST):
                self._rest.append(Train(frames[start : start + BURST], train.good))
            self._send_rest()
            return
        self._trains.append(train)
        self._frames += len(frames)
        self._qp.spent += FRAME_COST * len(frames)

    def _gather(self, work: FrameWork) -> bytes:
        """Return the bytes to send, read once: software may change them on their way."""
        return b"".join(self._qp.memory.gather(work.parts, note=True, what=What.FRAME))

    def _frame(self, work: FrameWork) -> Train:
        if not HEADER_SIZE <= work.length <= self._most:
            raise WorkError(f"a frame of {work.length} bytes")
        frame = tagged(self._gather(work), work.tag_type, work.tag)
        good = False
        if work.checksums:
            frame, good = with_checksums(frame, work.checksums)
        return Train([frame.ljust(MIN_FRAME, b"\0")], good)

    def _segments(self, work: FrameWork) -> Train:
        mss, header = work.mss, work.header
        if work.length > MAX_SEND or work.length > mss * MAX_SEGMENTS:
            raise WorkError(f"a large send of {work.length} bytes, {mss} in each frame")
        if len(header) + min(work.length, mss) > self._most:
            raise WorkError(f"frames of {mss} bytes behind {len(header)} of headers")
        frames = work.cut(tagged(header, work.tag_type, work.tag), self._gather(work))
        frames[-1] = frames[-1].ljust(MIN_FRAME, b"\0")
        work.length += len(header)
        return Train(frames, True)
