"""A client of RTRS and RNBD that breaks one rule.

hostile_peer.py name        a session's name: 255 bytes, none of them zero
hostile_peer.py open        a device's name: 255 bytes, none of them zero
hostile_peer.py io OP SIZE  one I/O message of 4096 bytes: operation OP, room for SIZE bytes of data

All else is the honest client of `guest.protocols.rtrs`, from 10.9.0.1 to the server at 10.9.0.2.
"""

import os
import random
import sys

from bluebridge.device.layout.net import rnbd, rtrs
from bluebridge.guest.protocols.rnbd.engine import messages as rnbd_messages
from bluebridge.guest.protocols.rtrs.engine.actions import AddressPair, Direction, Finished, Opened
from bluebridge.guest.protocols.rtrs.engine.client import shared as rtrs_messages
from bluebridge.guest.protocols.rtrs.engine.settings import ClientSettings
from bluebridge.guest.protocols.rtrs.transport.interfaces import open_interfaces, parse_interface
from bluebridge.guest.protocols.rtrs.transport.loop import Loop
from bluebridge.guest.protocols.rtrs.transport.transport import ClientSide

DISK = "/dev/ram0"
NO_END = b"n" * 255
rule, *numbers = sys.argv[1:]
told = []


def info_request(_name: bytes) -> bytes:
    return bytes(rtrs.INFO_REQ.pack(type=rtrs.MessageType.INFO_REQ, pathname=NO_END))


def answer(kind: type) -> int:
    """Run the loop until the client is told of such an event; print it; its errno."""
    while not (events := [event for event in told if isinstance(event, kind)]):
        loop.turn()
    print(*events, flush=True)
    told.clear()
    return events[0].errno


def session(name: str, attempts: int = 9) -> ClientSide:
    """Open a session, with slots of one page each; exit if the server does not answer."""
    settings = ClientSettings(max_segments=1)
    client = ClientSide(interfaces, loop, told.append, name, random.Random(), settings)
    path = AddressPair("10.9.0.1", "10.9.0.2")
    for _ in range(attempts):
        client.transport.call(lambda now: client.engine.open([path], now))
        if not answer(Opened):
            return client
    sys.exit("no session")


def request(client: ClientSide, message: bytes, size: int) -> bytes:
    """Send a message of RNBD; `size` bytes of the answer."""
    permit = client.engine.get_permit(admin=True)
    client.transport.call(
        lambda now: client.engine.request(Direction.READ, permit, bytes(message), size, now)
    )
    answer(Finished)
    return bytes(client.slots.data(permit.slot)[:size])


with Loop() as loop, open_interfaces([parse_interface("10.9.0.1/24")], False) as interfaces:
    client = session(f"honest-{os.getpid()}")
    if rule == "name":
        rtrs_messages.info_request = info_request
        session("hostile", attempts=1)
    elif rule == "open":
        request(client, rnbd.OPEN.pack(type=rnbd.MessageType.OPEN, dev_name=NO_END), 0)
    else:
        operation, size = map(int, numbers)
        opening = rnbd_messages.pack_open(DISK, rnbd.AccessMode.RO)
        device, _ = rnbd_messages.parse_opened(request(client, opening, rnbd.OPEN_RSP.size))
        request(client, rnbd_messages.pack_io(device, 0, operation, 4096), size)
