"""The two sides of krping: the server reads the client's source buffer and writes its sink."""

from __future__ import annotations

import time

from bluebridge.guest.protocols.krping.benchmarks import bench_client, bench_server, register_again
from bluebridge.guest.protocols.krping.option_string import Test
from bluebridge.guest.protocols.krping.progress import KrpingError, State, ping_data, shown
from bluebridge.guest.protocols.krping.resources import Resources
from bluebridge.guest.protocols.krping.thread import CONN_PARAM, KrpingThread

RESOLVE_SECONDS = 5.0


class Client(KrpingThread):
    """The client of one run: connects, pings `count` times or without end, disconnects."""

    def run(self) -> None:
        """Resolve the address, connect, run the test; raises `KrpingError` or `Cancelled`."""
        options = self.options
        self.cm_id.traffic_class = options.tos
        self.cm_id.resolve_addr(options.addr, options.port, RESOLVE_SECONDS)
        self.wait_for(State.ROUTE_RESOLVED, boundary=True)
        self.log.line("rdma_resolve_addr - rdma_resolve_route successful")
        resources = self.set_up()
        self.cm_id.attach(resources.qp)
        resources.qp.post_recv(resources.recv_wr)
        self.cm_id.connect(CONN_PARAM)
        self.wait_for(State.CONNECTED, boundary=True)
        self.log.line("rdma_connect successful")
        if options.test is Test.PING:
            self._pings(resources)
        elif options.test is Test.FR:
            register_again(self, resources)
        else:
            bench_client(self, resources)

    def _pings(self, resources: Resources) -> None:
        count, size, clock = self.options.count, self.options.size, time.perf_counter_ns
        ping = 0
        while (not count or ping < count) and not self.cancelled:
            data = ping_data(ping, size)
            begun = clock()
            self._ping(resources, data)
            self.latencies.add((clock() - begun) / 1000)
            ping += 1
            self.iterations = ping
            self._check(resources, data)

    def _ping(self, resources: Resources, data: bytes) -> None:
        """Advertise the source and await the go-ahead, then do the same with the sink."""
        self.state = State.RDMA_READ_ADV
        resources.start[:] = data
        self.post(resources.advertise(resources.start_address))
        self.wait_for(State.RDMA_WRITE_ADV)
        self.post(resources.advertise(resources.rdma_address))
        self.wait_for(State.RDMA_WRITE_COMPLETE)

    def _check(self, resources: Resources, data: bytes) -> None:
        if self.options.validate:
            if resources.rdma != data or resources.start != data:
                self.log.note("data mismatch!")
                raise KrpingError(f"data mismatch in iteration {self.iterations}")
            self.validated += 1
        if self.options.verbose:
            self.log.note(f"ping data (64B max): |{shown(resources.rdma)}|")


class Server(KrpingThread):
    """The server of one run: waits for one client and serves it until it disconnects."""

    def run(self) -> None:
        """Listen, accept one client, serve its test; raises `KrpingError` or `Cancelled`."""
        options = self.options
        self.cm_id.bind_addr(options.addr, options.port)
        self.log.line("rdma_bind_addr successful")
        self.cm_id.listen()
        self.log.line("rdma_listen")
        self.wait_for(State.CONNECT_REQUEST, boundary=True)
        child = self.child
        assert child is not None  # what CONNECT_REQUEST means
        resources = self.set_up()
        child.attach(resources.qp)
        resources.qp.post_recv(resources.recv_wr)
        self.log.line("accepting client connection request")
        child.accept(CONN_PARAM)
        if options.test is Test.PING:
            self._serve(resources)
        else:
            bench_server(self, resources)

    @property
    def complete(self) -> bool:
        """True when the run is complete; a one-sided benchmark's server learns only its end."""
        if self.options.test in (Test.RLAT, Test.BW) and not self.options.duplex:
            return not self.cancelled
        return super().complete

    def _serve(self, resources: Resources) -> None:
        """Serve pings until the client disconnects, which is a good end only between two pings."""
        while True:
            try:
                self.wait_for(State.RDMA_READ_ADV, boundary=True)
            except KrpingError:
                if not self.disconnected:
                    raise
                break
            self._read(resources)
            self._write(resources)
            self.iterations += 1
        if self.options.count and self.iterations != self.options.count:
            raise KrpingError(
                f"the client left after {self.iterations} of {self.options.count} iterations"
            )

    def _read(self, resources: Resources) -> None:
        """Read the ping data from the client's source buffer and send the go-ahead."""
        self.log.debug("server received sink adv")
        address, key, length = self._remote_buffer()
        self.post(resources.read_chain(address, key, length))
        self.log.debug("server posted rdma read req")
        self.wait_for(State.RDMA_READ_COMPLETE)
        self.log.debug("server received read complete")
        self._go_ahead(resources, key)
        # Checked while the client prepares its next step, not in its way.
        if self.options.validate:
            if resources.rdma[:length] != ping_data(self.iterations, length):
                self.log.note("data mismatch!")
                raise KrpingError(f"data mismatch in iteration {self.iterations + 1}")
            self.validated += 1
        if self.options.verbose:
            text = shown(resources.rdma)
            self.log.note(f"server ping data (64B max): |{text}|")

    def _write(self, resources: Resources) -> None:
        """Write the ping data to the client's sink buffer and send the go-ahead."""
        self.wait_for(State.RDMA_WRITE_ADV)
        self.log.debug("server received sink adv")
        address, key, size = self._remote_buffer()
        length = bytes(resources.rdma[:size]).find(0) + 1 or size
        self.post(resources.write_chain(address, key, length))
        self.wait_for(State.RDMA_WRITE_COMPLETE)
        self.log.debug("server rdma write complete")
        self.state = State.CONNECTED
        self._go_ahead(resources, key)

    def _go_ahead(self, resources: Resources, key: int) -> None:
        """Tell the client to go on; with server_inv the SEND invalidates its key, too."""
        request = resources.send_wr
        if self.options.server_inv:
            request.invalidate_rkey = key
            if self.log.debugging:
                self.log.line(f"send-w-inv rkey {key:#x}")
        self.post((request,))
        self.log.debug("server posted go ahead")

    def _remote_buffer(self) -> tuple[int, int, int]:
        """Return the buffer that the client advertised, which must fit into this side's."""
        if self.remote[2] > self.options.size:
            raise KrpingError(
                f"the client's size={self.remote[2]} is larger than the server's "
                f"size={self.options.size}: give both sides the same"
            )
        return self.remote
