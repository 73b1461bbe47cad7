"""`python3 -m bluebridge.guest.drivers.ntb`: a bridge by hand, over VFIO.

Every command opens the bridge anew, which resets it, wants the link, and gives the bridge back at
its end. So the other guest has to run something at the same time: `watch` there, or the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from bluebridge.guest.bus.vectors import Deadline
from bluebridge.guest.drivers.dma import open_engine
from bluebridge.guest.drivers.ntb import Bridge, LinkState, NtbError, NtbTimeout, open_bridge
from bluebridge.guest.drivers.ntb.pingpong import LARGEST, PingPong
from bluebridge.guest.errors import DeviceError

SHOWN = 1 << 20
"""The bytes of memory that `watch` shows to the peer through window 0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns 1 after one line on standard error if it fails, 130 after Ctrl-C."""
    given = _parser().parse_args(arguments)
    try:
        with open_bridge() as bridge:
            bridge.enable_link()
            action: Callable[[Bridge, argparse.Namespace], None] = given.action
            action(bridge, given)
    except (OSError, DeviceError, MemoryError) as error:
        print(f"ntb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m bluebridge.guest.drivers.ntb",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--wait", type=float, default=30.0, metavar="S", help="for the link or the peer (30 s)"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, action: Callable[..., None], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(action=action)
        return command

    add("show", show, "link, scratchpads, doorbells and windows, once the link is up")
    watch_command = add("watch", watch, "show 1 MiB through window 0, answer rings, tell of all")
    watch_command.add_argument(
        "--for", dest="seconds", type=float, metavar="S", help="end after so many seconds"
    )
    command = add("ring", ring, "ring doorbells of a peer that watches")
    command.add_argument("number", type=int, nargs="+")
    command = add("spad", spad, "write a scratchpad of the peer")
    command.add_argument("index", type=int)
    command.add_argument("value", type=_number)
    command = add("store", store, "store text into what the peer shows through window 0")
    command.add_argument("offset", type=_number)
    command.add_argument("text")
    command = add("pingpong", pingpong, "by doorbell and by DMA; run it in both guests")
    command.add_argument("--count", type=_several, default=1000, help="round trips (1000)")
    command.add_argument("--size", type=_size, default=64, help="bytes of a copy (64)")
    command.add_argument("--json", action="store_true", help="one JSON object")
    return parser


def _number(text: str) -> int:
    """Parse a decimal number, or a hexadecimal one with 0x."""
    return int(text, 0)


def _several(text: str) -> int:
    value = int(text)
    if value < 2:
        raise argparse.ArgumentTypeError(f"{text} is less than 2")
    return value


def _size(text: str) -> int:
    value = int(text)
    if not 1 <= value <= LARGEST:
        raise argparse.ArgumentTypeError(f"{text} is not 1 to {LARGEST}")
    return value


def show(bridge: Bridge, given: argparse.Namespace) -> None:
    """Print the properties and the state of the bridge, with or without a link."""
    try:
        link = bridge.wait_link(timeout=given.wait)
    except NtbTimeout:
        link = LinkState(False)
    print(f"{bridge.name}, port {bridge.port} of 2; link {link}")
    for window in bridge.windows:
        print(
            f"window {window.number}: {window.size:#x} bytes at {window.address:#x}, "
            f"translations at multiples of {window.align:#x}"
        )
    pads = range(bridge.spads)
    print("scratchpads:  ", " ".join(f"{bridge.spad(index):x}" for index in pads))
    print("the peer's:   ", " ".join(f"{bridge.peer_spad(index):x}" for index in pads))
    print(f"doorbells: {bridge.doorbells}, rung {bridge.rung():#x}, masked {bridge.masked:#x}")


def watch(bridge: Bridge, given: argparse.Namespace) -> None:
    """Print the events of the bridge as they come."""
    window = bridge.windows[0]
    memory = bridge.allocate(max(SHOWN, window.align), max(4096, window.align))
    window.set_translation(memory.address, SHOWN)
    bridge.unmask(bridge.every_doorbell)
    print(f"{bridge.name}, port {bridge.port} of 2: window 0 of the peer shows memory here")
    before, pads = bytes(memory.view[:64]), [bridge.spad(index) for index in range(bridge.spads)]
    link, deadline = bridge.link(), Deadline(given.seconds)
    vectors = [bridge.link_vector, *bridge.vectors_of(bridge.every_doorbell)]
    print(f"link {link}", flush=True)
    while not deadline.over:
        bridge.vectors.wait(vectors, 0.2 if deadline.left is None else min(0.2, deadline.left))
        if (now := bridge.link()) != link:
            link = now
            print(f"link {link}")
        if rung := bridge.rung():
            bridge.clear(rung)
            bridge.ring(rung)
            print(f"doorbells {rung:#x}")
        for index, value in enumerate(pads):
            if (new := bridge.spad(index)) != value:
                pads[index] = new
                print(f"scratchpad {index}: {new:#x}")
        if (start := bytes(memory.view[:64])) != before:
            before = start
            print(f"memory begins with {start!r}")
        sys.stdout.flush()


def ring(bridge: Bridge, given: argparse.Namespace) -> None:
    """Ring doorbells of the peer, and wait for the answer of a peer that runs `watch`.

    Without an answer nobody could tell when the ring has arrived, and the end of this process takes
    the link down.
    """
    if any(not 0 <= number < bridge.doorbells for number in given.number):
        raise NtbError(f"there are doorbells 0 to {bridge.doorbells - 1}")
    bridge.wait_link(timeout=given.wait)
    left = bits = sum(1 << number for number in set(given.number))
    bridge.unmask(bits)
    bridge.ring(bits)
    deadline = Deadline(given.wait)
    try:
        while left:
            left &= ~bridge.wait_rung(left, deadline.left)
    except NtbTimeout:
        raise NtbTimeout(
            "nobody answers: run `python3 -m bluebridge.guest.drivers.ntb watch` in the peer"
        ) from None
    print(f"the peer has answered doorbells {bits:#x}")


def spad(bridge: Bridge, given: argparse.Namespace) -> None:
    """Write a scratchpad of the peer and read it back."""
    bridge.wait_link(timeout=given.wait)
    if not 0 <= given.value < 1 << 32:
        raise NtbError(f"a scratchpad has 32 bits, {given.value:#x} has more")
    bridge.set_peer_spad(given.index, given.value)
    print(f"the peer's scratchpad {given.index} is {bridge.peer_spad(given.index):#x}")


def store(bridge: Bridge, given: argparse.Namespace) -> None:
    """Store bytes through a window and read them back."""
    bridge.wait_link(timeout=given.wait)
    data = given.text.encode()
    window = bridge.windows[0]
    window.store(given.offset, data)
    if window.load(given.offset, len(data)) != data:
        raise NtbError("the peer shows no memory there: run `watch` in it")
    print(f"{len(data)} bytes are in the peer's memory")


def pingpong(bridge: Bridge, given: argparse.Namespace) -> None:
    """Run the ping-pong with the peer and print its times (half a round trip each)."""
    with open_engine() as engine:
        bridge.wait_link(timeout=given.wait)
        game = PingPong(bridge, engine)
        game.meet(given.wait)
        found = {
            "interrupt": game.by_interrupt(given.count),
            "doorbell": game.by_doorbell(given.count),
            "dma": game.by_dma(given.count, given.size),
        }
        game.close()
    report = {name: _times(times) for name, times in found.items()}
    if given.json:
        print(json.dumps(report))
        return
    print(f"microseconds, half of {given.count} round trips:")
    titles = {
        "interrupt": "doorbell, spinning",
        "doorbell": "doorbell, sleeping",
        "dma": f"{given.size} bytes by DMA",
    }
    for name, text in titles.items():
        print(f"  {text:<20}", ", ".join(f"{key} {us:.0f}" for key, us in report[name].items()))


def _times(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    last = len(times) - 1
    return {"min": times[0], "p50": times[last // 2], "p99": times[last * 99 // 100]}


if __name__ == "__main__":
    sys.exit(main())
