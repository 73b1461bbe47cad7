"""The krping client: advertises its buffers; the server reads the source and writes the sink."""

from __future__ import annotations

import time

from bluebridge.guest.protocols.krping.benchmarks import bench_client
from bluebridge.guest.protocols.krping.errors import KrpingError
from bluebridge.guest.protocols.krping.option_string import Test
from bluebridge.guest.protocols.krping.pattern import ping_data, shown
from bluebridge.guest.protocols.krping.registrations import register_again
from bluebridge.guest.protocols.krping.resources import Resources
from bluebridge.guest.protocols.krping.state import State
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
        """Run the ping loop."""
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
        """Compare received with sent data, and show it, as the options say."""
        if self.options.validate:
            if resources.rdma != data or resources.start != data:
                self.log.note("data mismatch!")
                raise KrpingError(f"data mismatch in iteration {self.iterations}")
            self.validated += 1
        if self.options.verbose:
            self.log.note(f"ping data (64B max): |{shown(resources.rdma)}|")
