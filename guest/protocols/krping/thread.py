"""The base class of client and server: events of the connection manager, completions, waiting.

As in krping.c: krping_cma_event_handler.
"""

from __future__ import annotations

import os
import select
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from bluebridge.guest.cm import CmEvent, CmId, ConnectionManager, ConnParam, EventType
from bluebridge.guest.protocols.krping.option_string import Options, Test
from bluebridge.guest.protocols.krping.progress import (
    PREFIX,
    Cancelled,
    KrpingError,
    Latencies,
    Log,
    State,
    Stats,
    after_advertisement,
    after_go_ahead,
    explain,
)
from bluebridge.guest.protocols.krping.resources import ADVERTISEMENT, Resources
from bluebridge.guest.verbs import HEALTH_SECONDS, Device, SendWr, Wc, WcOpcode, WcStatus

_SUCCESS, _FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
_RECV, _SEND = WcOpcode.RECV, WcOpcode.SEND
_WRITE, _READ = WcOpcode.RDMA_WRITE, WcOpcode.RDMA_READ
GRACE_SECONDS = 3.0
"""The seconds that a cancelled thread may take to finish the iteration it is in."""
PARTING_SECONDS = 5.0
LEAST_LOOK, MOST_LOOK = 500_000, 10_000_000
"""The nanoseconds to poll for completions before sleeping: at least as long as a wake-up takes."""
BATCH = 16
CONN_PARAM = ConnParam(responder_resources=1, initiator_depth=1)


class KrpingThread(ABC):
    """One krping run: `run` is for one thread, `cancel` may be called by any.

    `remote` is the peer's buffer as it was advertised last: address, rkey, length.
    """

    def __init__(
        self, device: Device, manager: ConnectionManager, options: Options, log: Log
    ) -> None:
        self.options = options
        self.log = log
        self.state = State.IDLE
        self.stats = Stats()
        self.latencies = Latencies()
        self.iterations = 0
        self.validated = 0
        self.failure = ""
        self.disconnected = False
        """True when the peer has disconnected, not when it was lost."""
        self.remote = (0, 0, 0)
        self.device = device
        self.number = 0
        self.cm_id = manager.create_id()
        self.child: CmId | None = None
        self.resources: Resources | None = None
        self._cancel_at: float | None = None
        self._look_nanoseconds = LEAST_LOOK
        """How long to poll before sleeping: twice as long as waiting has taken of late."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(self.cm_id.events.fileno(), select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        log.line(f"created cm_id {id(self.cm_id):016x}")

    @property
    def name(self) -> str:
        """The name of the thread, the first of the nine columns."""
        return f"{self.number}-{self.device.query_device().name}"

    @abstractmethod
    def run(self) -> None:
        """Connect and carry out the test; raises `KrpingError` or `Cancelled`."""

    def fail(self, reason: str) -> None:
        """Enter ERROR, which ends every wait; the first reason is kept."""
        self.state = State.ERROR
        self.failure = self.failure or reason

    def cancel(self) -> None:
        """End the run soon: at the end of an iteration if that comes within `GRACE_SECONDS`."""
        if self._cancel_at is None:
            self._cancel_at = time.monotonic()
            os.eventfd_write(self._wake, 1)

    @property
    def cancelled(self) -> bool:
        """True after `cancel` was called."""
        return self._cancel_at is not None

    @property
    def complete(self) -> bool:
        """True when everything that was asked for is done; always for an endless run."""
        return not self.options.count or self.iterations == self.options.count

    def close(self) -> None:
        """Disconnect and free everything; no method may be called after it."""
        if self.resources is not None:
            self._part(self.child or self.cm_id)
        if self.child is not None:
            self.child.destroy()
        self.log.line(f"destroy cm_id {id(self.cm_id):016x}")
        self.cm_id.destroy()
        if self.resources is not None:
            self.resources.close()
        os.close(self._wake)

    def _part(self, connection: CmId) -> None:
        """Disconnect and wait until the peer knows, since this process may end at once."""
        waiting = connection.connected and not self.disconnected
        waiting = waiting and not self.device.health.lost
        connection.disconnect()
        deadline = time.monotonic() + PARTING_SECONDS
        while waiting and (left := deadline - time.monotonic()) > 0:
            event = connection.events.get(left)
            if event is not None and event.type is EventType.DISCONNECTED:
                return

    # -- waiting ---------------------------------------------------------------------------

    def wait_for(self, wanted: State, *, boundary: bool = False) -> None:
        """Wait until the state is `wanted` or later; raises when it then is not `wanted`.

        At a `boundary` between iterations a cancelled thread ends at once. It looks for completions
        for a while, which grows when they come soon after it and shrinks when they do not, then
        sleeps.
        """
        begun = time.perf_counter_ns()
        while self.state < wanted:
            if self.drain() or self._look():
                continue
            if self.resources is not None:
                self.resources.cq.req_notify()
                if self.drain():
                    continue
            self._sleep(boundary)
        self._waited(time.perf_counter_ns() - begun)
        if self.state is not wanted:
            self.log.note(f"wait for {wanted.name} state {self.state:d}")
            raise KrpingError(self.failure or f"wait for {wanted.name} state {self.state:d}")

    def post(self, requests: Sequence[SendWr]) -> None:
        """Post a chain of work requests."""
        if self.resources is not None:
            self.resources.qp.post_send(requests)

    def _look(self) -> bool:
        """Poll for completions for a short time; returns True if any came."""
        if self.resources is None:
            return False
        end = time.perf_counter_ns() + self._look_nanoseconds
        while time.perf_counter_ns() < end:
            if self.drain():
                return True
        return False

    def _waited(self, nanoseconds: int) -> None:
        """Learn from how long a wait has taken whether it would have paid to look for longer."""
        look = self._look_nanoseconds
        look = (look + 2 * nanoseconds) // 2 if nanoseconds < MOST_LOOK else look // 2
        self._look_nanoseconds = min(max(look, LEAST_LOOK), MOST_LOOK)

    def await_completion(self) -> None:
        """Handle at least one batch of completions; raises when the run ends before."""
        while not self.drain():
            if self.state is State.ERROR:
                raise KrpingError(self.failure)
            if self.resources is not None:
                self.resources.cq.req_notify()
                if self.drain():
                    break
            if self._sleep(False):
                break
        if self.state is State.ERROR:
            raise KrpingError(self.failure)

    def _sleep(self, boundary: bool) -> bool:
        """Wait for the completion channel, the connection manager or `cancel`.

        Returns whether completions were handled meanwhile, ahead of an event of the connection.
        """
        timeout = None
        drained = False
        if self._cancel_at is not None:
            left = self._cancel_at + GRACE_SECONDS - time.monotonic()
            if boundary or left <= 0:
                raise Cancelled
            timeout = left * 1000
        channel = self.resources.channel if self.resources is not None else None
        # Slices: of the device's end nothing else would tell.
        ready = self._poller.poll(min(HEALTH_SECONDS * 1000, timeout or HEALTH_SECONDS * 1000))
        if not ready:
            self.device.health.check()
        for fd, _ in ready:
            if fd == self._wake:
                os.eventfd_read(self._wake)
            elif channel is not None and fd == channel.fileno():
                channel.get_event(0)
            else:
                # Completions first: what the peer sent before it parted still counts.
                drained = self.drain()
                self._connection_event(self.cm_id.events.get_nowait())
        return drained

    def poll_events(self) -> None:
        """Handle events without waiting, for tests that spin; raises when the run is over."""
        for fd, _ in self._poller.poll(0):
            if fd == self.cm_id.events.fileno():
                self._connection_event(self.cm_id.events.get_nowait())
        self.device.health.check()
        if self._cancel_at is not None:
            raise Cancelled
        if self.state is State.ERROR:
            raise KrpingError(self.failure or "state == ERROR, bailing")

    # -- the connection --------------------------------------------------------------------

    def _connection_event(self, event: CmEvent | None) -> None:
        if event is None:
            return
        role = "parent" if event.id is self.cm_id else "child"
        self.log.line(f"cma_event type {event.type:d} cma_id {id(event.id):016x} ({role})")
        match event.type:
            case EventType.ADDR_RESOLVED:
                self.state = State.ADDR_RESOLVED
                self.cm_id.resolve_route()
            case EventType.ROUTE_RESOLVED:
                self.state = State.ROUTE_RESOLVED
            case EventType.CONNECT_REQUEST:
                self._requested(event.id)
            case EventType.ESTABLISHED:
                self.log.line("ESTABLISHED")
                if not self.options.server:
                    self.state = State.CONNECTED
            case EventType.DISCONNECTED:
                self.log.note("DISCONNECT EVENT...")
                self.disconnected = not event.status
                self.fail("the peer is lost" if event.status else "the peer disconnected")
            case EventType.TIMEWAIT_EXIT:
                pass
            case EventType.DEVICE_REMOVAL:
                self.log.note("cma detected device removal!!!!")
                self.fail(str(self.device.health.loss()))
            case _:
                self.log.note(f"cma event {event.type:d}, error {event.status}")
                self.fail(explain(event, self.options))

    def _requested(self, child: CmId) -> None:
        """Take a client's request; krping serves one client and rejects later ones."""
        if self.child is not None:
            child.reject()
            child.destroy()
            return
        self.state = State.CONNECT_REQUEST
        self.child = child
        self.log.line(f"child cma {id(child):016x}")

    def set_up(self) -> Resources:
        """Make queue pair and buffers; `KrpingError` for a device without fast registration."""
        attr = self.device.query_device()
        if not (attr.fast_reg and attr.local_inv):
            raise KrpingError(f"Fastreg not supported - device_cap_flags {attr.flags:#x}")
        self.log.line(f"Fastreg supported - device_cap_flags {attr.flags:#x}")
        resources = Resources(self.device, self.options, self.log)
        self.resources = resources
        self._poller.register(resources.channel.fileno(), select.POLLIN)
        return resources

    # -- completions -----------------------------------------------------------------------

    def drain(self) -> bool:
        """Handle the completions there are; returns True if there were any."""
        resources = self.resources
        if resources is None:
            return False
        completions = resources.cq.poll(BATCH)
        if not completions:
            return False
        for completion in completions:
            self._completed(completion, resources)
        return True

    def _completed(self, completion: Wc, resources: Resources) -> None:
        """Count one completion and set the next state (krping.c: krping_cq_event_handler)."""
        if self.state is State.ERROR:
            self.log.debug(f"{PREFIX}cq completion in ERROR state")
            return
        if completion.status is not _SUCCESS:
            self._failed(completion)
            return
        opcode, stats = completion.opcode, self.stats
        if opcode is _RECV:
            self.log.debug("recv completion")
            stats.recv_bytes += ADVERTISEMENT.size
            stats.recv_msgs += 1
            self._received(completion, resources)
        elif opcode is _SEND:
            self.log.debug("send completion")
            stats.send_bytes += ADVERTISEMENT.size
            stats.send_msgs += 1
        elif opcode is _READ:
            self.log.debug("rdma read completion")
            stats.read_bytes += resources.rdma_wr.sg_list[0].length
            stats.read_msgs += 1
            self.state = State.RDMA_READ_COMPLETE
        elif opcode is _WRITE:
            self.log.debug("rdma write completion")
            stats.write_bytes += resources.rdma_wr.sg_list[0].length
            stats.write_msgs += 1
            self.state = State.RDMA_WRITE_COMPLETE

    def _received(self, completion: Wc, resources: Resources) -> None:
        """Take the peer's SEND: an advertisement, or on a pinging client the go-ahead."""
        if completion.byte_len != ADVERTISEMENT.size:
            self.log.note(f"Received bogus data, size {completion.byte_len}")
            self.fail(f"the peer sent {completion.byte_len} bytes where krping sends 16")
            return
        if self.options.server or self.options.test is not Test.PING:
            self.remote = resources.received()
            if self.log.debugging:
                address, key, size = self.remote
                self.log.line(f"Received rkey {key:x} addr {address:x} len {size} from peer")
            self.state = after_advertisement(self.state)
        else:
            self.state = after_go_ahead(self.state)
        resources.qp.post_recv(resources.recv_wr)

    def _failed(self, completion: Wc) -> None:
        """Take a failed completion; a flushed one only says that the connection ended."""
        if completion.status is _FLUSHED:
            self.log.debug("cq flushed")
            return
        self.log.note(
            f"cq completion failed with wr_id {completion.wr_id:x} status {completion.status:d} "
            f"opcode {completion.opcode:d} vender_err {completion.vendor_err:x}"
        )
        self.fail(f"a work request failed with status {completion.status.name}")
