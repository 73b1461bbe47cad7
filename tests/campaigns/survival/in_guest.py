"""Runs in a guest: NTRDMA that lives on while its peers come, die in any state, and come.

    python3 in_guest.py stay                                # until SIGTERM
    python3 in_guest.py lives --ends 3:stop 4:close 5:hold

Each life is a process that is forked from one which has everything imported.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bluebridge.device.layout.ntrdma.port import PortState
from bluebridge.guest.cm import CmEvent, CmId, ConnectionManager, EventType
from bluebridge.guest.connections import open_connections
from bluebridge.guest.errors import DeviceError
from bluebridge.guest.link import CLIENT, DEPTH, RECEIVED, SECONDS, SENT, SERVER, Link, Lost
from bluebridge.guest.ntrdma.back_ends import BACK_END
from bluebridge.guest.ntrdma.open import open_ntrdma
from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.verbs import Device, DeviceLost, VerbsError, WrOpcode

Opener = Callable[[Sequence[Callable[[PortState], None]], str], NtrdmaDevice]
"""Opens the device of a back end, with those who are told the states of its port."""
End = tuple[PortState, str]
"""A state of the port at which a life ends, and how."""
STOP, CLOSE, HOLD = "stop", "close", "hold"
"""How a life ends: stopped and killed, closed in order, or stopped until the machine reboots."""
PORT = 19766
SIZE = 16384
ROUNDS = 3
_NOTE = struct.Struct("<II")
"""Number of a round, checksum of what the memory then holds."""
_NOTES = 2 * SIZE
_OWN_NOTE = _NOTES + DEPTH * _NOTE.size
_WORKING = (PortState.QUIESCE, PortState.READY)
"""The ends that take a peer before: at the port's end, and in the midst of work."""


class WrongData(Exception):
    """Memory does not hold what it must."""


class Meeting(Link):
    """A link with what the peer writes, what is read back, and notes behind them."""

    pause = 0.001

    def __init__(self, device: Device) -> None:
        super().__init__(device, _OWN_NOTE + _NOTE.size)
        self._slot = 0
        self._post_receives()

    def begin_again(self) -> None:
        super().begin_again()
        self._post_receives()

    def exchange(self) -> None:
        """Write, have it summed up, read it back. Raises `Lost`, `WrongData`."""
        for number in range(ROUNDS):
            data = os.urandom(SIZE)
            self.view[:SIZE] = data
            self.write()
            self._tell(number, 0)
            self.wait(RECEIVED)
            if self._note() != (number, zlib.crc32(data)):
                raise WrongData("the peer has other bytes than were written")
            self.qp.post_send(self.request(WrOpcode.RDMA_READ, SIZE, SIZE))
            self.wait(SENT)
            if self.view[SIZE:_NOTES] != data:
                raise WrongData("other bytes were read than had been written")

    def write(self) -> None:
        """Write the memory into the peer's; nothing tells of the end."""
        self.qp.post_send(self.request(WrOpcode.RDMA_WRITE, 0, SIZE, signaled=False))

    def answer(self) -> bool:
        """Sum up the memory for each note that has come; whether there was one. Raises `Lost`."""
        arrived = [*self.done, *self.poll()]
        self.done.clear()
        notes = [wc for wc in arrived if wc.wr_id == RECEIVED]
        for _ in notes:
            self._tell(self._note()[0], zlib.crc32(self.view[:SIZE]))
        return bool(notes)

    def _tell(self, number: int, summed: int) -> None:
        _NOTE.pack_into(self.view, _OWN_NOTE, number, summed)
        self.qp.post_send(self.request(WrOpcode.SEND, _OWN_NOTE, _NOTE.size))
        self.wait(SENT)

    def _note(self) -> tuple[int, int]:
        """The oldest note, whose receive is posted anew."""
        number, summed = _NOTE.unpack_from(self.view, _NOTES + self._slot * _NOTE.size)
        self._post_receive(self._slot)
        self._slot = (self._slot + 1) % DEPTH
        return number, summed

    def _post_receives(self) -> None:
        for slot in range(DEPTH):
            self._post_receive(slot)

    def _post_receive(self, slot: int) -> None:
        self.qp.post_recv(self.receive(_NOTES + slot * _NOTE.size, _NOTE.size))


# -- the side that stays --------------------------------------------------------------------------


def holdings() -> dict[str, int]:
    """Open files, threads and resident memory in kilobytes of this process."""
    with open("/proc/self/status") as stream:
        words = dict(line.split(":", 1) for line in stream)
    kilobytes = int(words["VmRSS"].split()[0])
    files = len(os.listdir("/proc/self/fd"))
    return {"files": files, "threads": threading.active_count(), "kilobytes": kilobytes}


class Staying:
    """Serves visits on a device; `orderly` and `lost` count how they ended."""

    def __init__(self, device: NtrdmaDevice, manager: ConnectionManager) -> None:
        self._device = device
        self._listener = manager.create_id()
        self._listener.bind_addr(SERVER, PORT)
        self._listener.listen()
        self._next: CmEvent | None = None
        self.orderly = self.lost = 0

    def serve(self) -> None:
        """Wait for a visit, serve it to its end, and say so."""
        event, self._next = self._next or self._listener.events.get(1.0), None
        if event is None or event.type is not EventType.CONNECT_REQUEST:
            return
        try:
            self._visit(event)
            self.orderly += 1
        except DeviceLost:
            raise
        except (Lost, OSError, VerbsError):
            self.lost += 1
        said = {"orderly": self.orderly, "lost": self.lost, **holdings()}
        print(json.dumps(said), flush=True)

    def _visit(self, request: CmEvent) -> None:
        meeting = Meeting(self._device)
        try:
            meeting.accept(request)
            while not self._over(request.id):
                if not meeting.answer():
                    time.sleep(meeting.pause)
        finally:
            request.id.destroy()
            meeting.close()

    def _over(self, identifier: CmId) -> bool:
        """Whether the visitor has left, or another one stands before the door. Raises `Lost`."""
        event = self._listener.events.get_nowait()
        if event is None:
            return False
        if event.type is EventType.CONNECT_REQUEST:
            self._next = event
            raise Lost("another visitor has come")
        return event.id is identifier and event.type is not EventType.ESTABLISHED


def _stay(opener: Opener, back_end: str) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    with ExitStack() as owned:
        device = owned.enter_context(opener((), back_end))
        staying = Staying(device, open_connections(device, SERVER, owned))
        print("listening", flush=True)
        while not ended:
            staying.serve()


# -- the sides that come --------------------------------------------------------------------------


class Visit:
    """One life of a side, from opening the device to its `end`; None for a whole one."""

    def __init__(self, end: End | None) -> None:
        self._at: PortState | None = end[0] if end else None
        self._how = end[1] if end else CLOSE
        self._came = threading.Event()
        self._working = True

    def run(self, opener: Opener, back_end: str) -> None:
        """Raises `Lost`, `WrongData`, `DeviceError`."""
        with ExitStack() as owned:
            device = owned.enter_context(opener([self._entered], back_end))
            if self._at is None or self._at in _WORKING:
                device.wait_ready(SECONDS)
                self._work(device)
            elif not self._came.wait(SECONDS):
                raise Lost("the port has not come to that state")

    def _entered(self, state: PortState) -> None:
        """Of the port; under the service's lock."""
        if state is self._at and not (state in _WORKING and self._working):
            self._came.set()
            self._end()

    def _work(self, device: NtrdmaDevice) -> None:
        with ExitStack() as owned:
            manager = open_connections(device, CLIENT, owned)
            meeting = Meeting(device)
            identifier = meeting.connect(manager, PORT)
            meeting.exchange()
            if self._at is PortState.READY:
                for _ in range(DEPTH // 2):
                    meeting.write()
                self._end()
                return
            if self._at is None:
                identifier.disconnect()
                meeting.close()
        self._working = False

    def _end(self) -> None:
        """Stand still, to be killed, unless this life is to close in order."""
        if self._how != CLOSE:
            print("stopped", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)


def parse(word: str) -> End:
    """`STATE:HOW`. Raises `ValueError`."""
    state, _, how = word.partition(":")
    if how not in (STOP, CLOSE, HOLD):
        raise ValueError(f"{word}: how to end is {STOP}, {CLOSE} or {HOLD}")
    return PortState(int(state)), how


def _live(ends: Sequence[End], visit: Callable[[End | None], int]) -> None:
    """Ends, which are announced, and after each a life with an exchange that is right.

    That is the next one, if it ends in a state behind its exchange, or else a whole visit; there
    is one at the beginning too. Raises `Lost`.
    """
    recovering = True
    for state, how in ends:
        if recovering and state not in _WORKING:
            _life(None, visit)
        _life((state, how), visit)
        recovering = how != HOLD
        print(f"{int(state)}:{how}", flush=True)
    if recovering:
        _life(None, visit)


def _life(end: End | None, visit: Callable[[End | None], int]) -> None:
    """A forked process lives until its end, or through a whole visit. Raises `Lost`."""
    how = CLOSE if end is None else end[1]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = visit(end)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, os.WUNTRACED)
    if how == CLOSE and status:
        raise Lost(f"a life that should have parted ended with {status:#x}")
    if how != CLOSE and not os.WIFSTOPPED(status):
        raise Lost(f"a life that should have stopped ended with {status:#x}")
    if how == STOP:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# -- the program ----------------------------------------------------------------------------------


def main(opener: Opener, arguments: list[str] | None = None) -> int:
    """0 when all went well, 1 with a line on standard error else."""
    given = _parser().parse_args(arguments)
    if given.role == "stay":
        return _reported(lambda: _stay(opener, given.backend))

    def visit(end: End | None) -> int:
        return _reported(lambda: Visit(end).run(opener, given.backend))

    return _reported(lambda: _live(given.ends, visit))


def _reported(action: Callable[[], None]) -> int:
    try:
        action()
    except (DeviceError, OSError, MemoryError, Lost, WrongData) as error:
        print(f"survival: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="survival", description=__doc__.partition("\n")[0])
    parser.add_argument("role", choices=("stay", "lives"))
    parser.add_argument("--backend", default=BACK_END, help="of NTRDMA")
    parser.add_argument("--ends", type=parse, nargs="*", default=[], help="STATE:HOW")
    return parser


if __name__ == "__main__":
    sys.exit(main(lambda watchers, word: open_ntrdma(word, False, watchers=watchers)))
