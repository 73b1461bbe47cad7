"""Clients whose descriptors take long to close: nobody but they themselves notices."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from bluebridge.device.pyvfio_user._files import MOST_LEFT, MOST_WAITING
from bluebridge.device.pyvfio_user.constants import VfioUserCommand
from bluebridge.host_tools.vfio_user.client import Client
from bluebridge.host_tools.vfio_user.connection import CONFIG, MSIX, IrqFlag
from tests.models.lingering import LingeringSockets, send_last
from tests.models.server import ServerProcess, devices

GUEST = 0x1_0000_0000
PAGE = 4096
EVENTFD = IrqFlag.DATA_EVENTFD | IrqFlag.TRIGGER
HELLO = struct.pack("<HH", 0, 1) + b"{}\0"
ACCESS = struct.pack("<QII", 0, CONFIG, 4)
MESSAGES = {
    "config read": (VfioUserCommand.REGION_READ, ACCESS),
    "config write": (VfioUserCommand.REGION_WRITE, ACCESS + bytes(4)),
    "doorbell": (VfioUserCommand.REGION_WRITE, struct.pack("<QII", 0x14, 2, 4) + bytes(4)),
    "info": (VfioUserCommand.GET_INFO, struct.pack("<IIII", 16, 0, 0, 0)),
    "memory": (VfioUserCommand.DMA_MAP, struct.pack("<IIQQQ", 32, 3, 0, GUEST, PAGE)),
    "interrupt": (VfioUserCommand.SET_IRQS, struct.pack("<IIIII", 20, EVENTFD, MSIX, 0, 1)),
    "reset": (VfioUserCommand.RESET, b""),
    "no command": (VfioUserCommand(14), bytes(2)),
}


class Lab(NamedTuple):
    """A server with an adapter for the attacker and one for the bystander, who is connected.

    It has so many `files` open when both are connected.
    """

    server: ServerProcess
    path: Path
    bystander: Client
    files: int


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("files")
    with devices(folder) as server, Client(folder / "b") as bystander:
        with Client(folder / "a") as idle:
            assert idle.alive()
            files = server.open_files()
        yield Lab(server, folder / "a", bystander, files)


@pytest.fixture
def lingering(lab: Lab) -> Iterator[LingeringSockets]:
    """Descriptors that are closed at last when the test is over, without a leak."""
    with LingeringSockets() as sockets:
        yield sockets
    with Client(lab.path) as after:
        assert after.alive()
        assert lab.server.has_open(lab.files), "the server leaks descriptors"


def assert_others_are_served(lab: Lab) -> None:
    """The bystander, who brings new memory, too."""
    assert lab.bystander.alive()
    lab.bystander.share(GUEST, PAGE)
    lab.bystander.dma_unmap(GUEST, PAGE)


@pytest.mark.parametrize("message", MESSAGES)
def test_descriptors_that_come_with_any_message(
    lab: Lab, lingering: LingeringSockets, message: str
) -> None:
    command, body = MESSAGES[message]
    with Client(lab.path) as client:
        for _ in range(3):
            send_last(client, client.pack(command, body), lingering.make())
            client.receive()
            assert_others_are_served(lab)
        assert client.alive()
    assert_others_are_served(lab)
    with Client(lab.path) as after:
        after.share(GUEST, PAGE)


def test_descriptors_in_the_middle_of_a_message_and_behind_it(
    lab: Lab, lingering: LingeringSockets
) -> None:
    with Client(lab.path) as client:
        message = client.pack(VfioUserCommand.REGION_READ, ACCESS)
        for part in (message[:1], message[1:20], message[20:], message[:10]):
            send_last(client, part, lingering.make())
            assert_others_are_served(lab)
        client.receive()
    assert_others_are_served(lab)


@pytest.mark.parametrize("said", [b"\1", None], ids=["part", "whole"])
def test_descriptors_that_come_with_an_introduction(
    lab: Lab, lingering: LingeringSockets, said: bytes | None
) -> None:
    """Of a client that is turned away, too."""
    with Client(lab.path, negotiate=False) as client, Client(lab.path, negotiate=False) as other:
        for each in (client, other):
            hello = said or each.pack(VfioUserCommand.VERSION, HELLO)
            send_last(each, hello, lingering.make())
            assert_others_are_served(lab)
    assert_others_are_served(lab)


def test_descriptors_of_clients_that_are_busy(lab: Lab, lingering: LingeringSockets) -> None:
    """Callers where there is a client already, which the server closes unread or refuses."""
    with Client(lab.path), ExitStack() as stack:
        for _ in range(6):
            caller = stack.enter_context(Client(lab.path, negotiate=False))
            send_last(caller, caller.pack(VfioUserCommand.VERSION, HELLO), lingering.make())
            assert_others_are_served(lab)


def test_unread_descriptors_of_a_client_that_is_dropped(
    lab: Lab, lingering: LingeringSockets
) -> None:
    with Client(lab.path) as client:
        for _ in range(5):
            send_last(client, client.pack(VfioUserCommand.GET_INFO, size=1), lingering.make())
        assert_others_are_served(lab)
    with Client(lab.path) as after:
        assert after.alive()


def leave_something_behind(client: Client, lingering: LingeringSockets, times: int = 1) -> None:
    """Leave with descriptors that are refused and then take long to close."""
    with client:
        for _ in range(times):
            message = client.pack(*MESSAGES["interrupt"])
            # The server holds it until the message is whole, so that its close is the last one.
            send_last(client, message[:-1], lingering.make()).join()
            client.send(message[-1:])
            assert client.receive().error == errno.EINVAL


def test_what_hangs_is_left_behind_with_its_client(lab: Lab, lingering: LingeringSockets) -> None:
    leave_something_behind(Client(lab.path), lingering, times=12)
    assert_others_are_served(lab)
    with Client(lab.path) as after:
        after.share(GUEST, PAGE)
        assert after.alive()


def test_clients_that_leave_too_much_behind_stop_their_own_function_only(
    lab: Lab, lingering: LingeringSockets
) -> None:
    """It takes no more until something of that has been closed."""
    for _ in range(4 * MOST_LEFT):
        caller = Client(lab.path, negotiate=False, timeout=1.0)
        try:
            caller.negotiate()
        except TimeoutError:
            break
        leave_something_behind(caller, lingering)
        assert_others_are_served(lab)
    else:
        pytest.fail("so many clients left something behind, and it takes more")
    with caller:
        assert_others_are_served(lab)
        lingering.release()
        caller.socket.settimeout(10.0)
        assert not caller.receive().error


def test_a_flood_of_descriptors_waits_for_its_own_closes(
    lab: Lab, lingering: LingeringSockets
) -> None:
    """The server holds a bounded number, and drops the client when they do not become fewer."""
    with Client(lab.path) as client, pytest.raises(ConnectionError):
        for _ in range(2 * MOST_WAITING):
            send_last(client, client.pack(*MESSAGES["info"]), lingering.make())
            client.receive()
    assert lab.server.open_files() < lab.files + MOST_WAITING + 10
    assert_others_are_served(lab)
