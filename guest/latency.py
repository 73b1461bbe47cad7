"""`python3 -m bluebridge.guest.latency`: RDMA WRITEs to and fro by our driver, payload by payload.

Lines of JSON on standard input and output. Its first output is where it can be reached (`End`), its
first input the peer's `End`. Each further input asks for a payload: `{"size": 64, "count": 200,
"first": true}`. The side with `"first": false` prints `{"ready": 64}`, and only then may the other
side get its line; both print the microseconds of half a round trip. It ends with its input.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from bluebridge.guest.drivers.bus.machine import open_bus
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.providers import (
    BLUEFLAME_USES,
    add_provider_options,
    open_chosen,
    open_device,
)
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpInit,
    QpState,
    QpType,
    SendWr,
    Sge,
    VerbsError,
    WcStatus,
    WrOpcode,
)

LARGEST = 1 << 16
LOOKS = 500
"""The number of looks at memory, or for a completion, between two at the connection."""
SECONDS = 30.0
"""The time that the peer may take for its part of a round trip."""
_ACCESS = AccessFlags.LOCAL_WRITE | AccessFlags.REMOTE_WRITE
_PSN = 0x1000


@dataclass(frozen=True, slots=True)
class End:
    """The address of one side: its device in hex, queue pair, buffer and its key."""

    device: str
    qpn: int
    address: int
    rkey: int


class PingPong:
    """One side of the ping-pong: a queue pair, a buffer the peer writes to, one to write from.

    Payloads of at most `inline` bytes go inside of the send entry.
    """

    def __init__(self, device: Device, inline: int) -> None:
        self._device = device
        self._inline = inline
        self._pd = device.alloc_pd()
        self._cq = device.create_cq(16)
        init = QpInit(QpType.RC, self._cq, self._cq, 4, 4, 1, 1, inline)
        self._qp = self._pd.create_qp(init)
        self._memory = device.allocate(2 * LARGEST)
        self._mr = self._pd.reg_mr(self._memory.address, 2 * LARGEST, access=_ACCESS)
        self._peer = End("", 0, 0, 0)
        self.end = End(device.address.hex(), self._qp.qpn, self._memory.address, self._mr.rkey)

    def connect(self, peer: End) -> None:
        """Bring the queue pair up towards the peer's."""
        self._peer = peer
        self._qp.modify_init(_ACCESS)
        there = self._device.address_vector(bytes.fromhex(peer.device))
        self._qp.modify_rtr(there, peer.qpn, _PSN)
        self._qp.modify_rts(_PSN)

    def prepare(self, size: int) -> None:
        """Forget what earlier payloads wrote; the peer must not have begun yet."""
        self._memory.view[size - 1] = 0

    def play(self, size: int, count: int, *, first: bool) -> list[float]:
        """Return half of each round trip in microseconds; `VerbsError` when a write fails."""
        clock = time.perf_counter_ns
        data = bytearray(size)
        request = self._request(data)
        last, times = size - 1, []
        for turn in range(1, count + 1):
            number = turn & 0xFF
            if not first:
                self._hear(last, number)
            begun = clock()
            # The last byte lands last.
            data[-1] = self._memory.view[LARGEST + last] = number
            self._qp.post_send(request)
            self._complete()
            if first:
                self._hear(last, number)
            times.append((clock() - begun) / 2000)
        return times

    def _hear(self, index: int, number: int) -> None:
        """Wait until the peer has written a byte. Raises `DeviceError` when it never will."""
        heard, deadline = self._memory.view, 0.0
        while True:
            for _ in range(LOOKS):
                if heard[index] == number:
                    return
            self._device.health.check()
            deadline = deadline or time.monotonic() + SECONDS
            if self._qp.state is QpState.ERR or time.monotonic() > deadline:
                raise VerbsError("the peer is lost")

    def _request(self, data: bytearray) -> SendWr:
        size = len(data)
        request = SendWr(1, WrOpcode.RDMA_WRITE)
        request.remote_addr, request.rkey = self._peer.address, self._peer.rkey
        if size <= self._inline:
            request.inline_data = data
        else:
            request.sg_list = (Sge(self._memory.address + LARGEST, size, self._mr.lkey),)
        return request

    def _complete(self) -> None:
        looks = 0
        while not (done := self._cq.poll(1)):
            looks += 1
            if looks % LOOKS == 0:
                self._device.health.check()
        if done[0].status is not WcStatus.SUCCESS:
            raise VerbsError(f"a write ended with {done[0].status.name}")


def main(arguments: list[str] | None = None) -> int:
    """Play until the input ends; returns 1 after one line on standard error for a failure."""
    parser = argparse.ArgumentParser(
        prog="python3 -m bluebridge.guest.latency", description=__doc__
    )
    parser.add_argument("--blueflame", choices=BLUEFLAME_USES, default="off")
    parser.add_argument("--port", type=int, default=1, metavar="N", help="of two (default 1)")
    parser.add_argument("--inline", type=int, default=220, metavar="BYTES")
    add_provider_options(parser)
    given = parser.parse_args(arguments)

    def hca() -> Device:
        return open_device(open_bus(), blueflame=given.blueflame)

    try:
        with open_chosen(given, hca) as device:
            _serve(PingPong(device.port(given.port), given.inline))
    except (OSError, DeviceError, ValueError) as error:
        print(f"latency: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(side: PingPong) -> None:
    _say(asdict(side.end))
    side.connect(End(**json.loads(sys.stdin.readline())))
    for line in sys.stdin:
        asked = json.loads(line)
        size, count, first = int(asked["size"]), int(asked["count"]), bool(asked["first"])
        side.prepare(size)
        if not first:
            _say({"ready": size})
        times = sorted(side.play(size, count, first=first))
        _say({"typical": times[len(times) // 2], "best": times[0], "worst": times[-1]})


def _say(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
