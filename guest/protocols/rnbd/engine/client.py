"""The client's engine: maps devices of a server and carries block requests to them."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from bluebridge.device.layout.net import rnbd
from bluebridge.device.layout.net.rnbd import AccessMode, MessageType
from bluebridge.guest.protocols.rnbd.engine import messages
from bluebridge.guest.protocols.rnbd.engine.actions import (
    BlockRequest,
    ClientAction,
    ClientDevice,
    DeviceState,
    Done,
    Log,
    Mapped,
    Offline,
    PermitFree,
    Remapped,
    Requester,
    Resized,
    SessionClosed,
    SessionReady,
    Unmapped,
)
from bluebridge.guest.protocols.rnbd.engine.flights import Flights, IoFlight, Mailbox
from bluebridge.guest.protocols.rnbd.engine.messages import Geometry, MessageError
from bluebridge.guest.protocols.rtrs.engine.actions import Closed, Finished, LinkChanged, Opened
from bluebridge.guest.protocols.rtrs.engine.interface import Permit

MAX_SECTORS = 1 << 54
"""The largest size in sectors, beyond which the size in bytes exceeds 63 bits."""

_NOT_REMAPPED = {
    DeviceState.INIT: errno.EBUSY,
    DeviceState.MAPPED: errno.EALREADY,
    DeviceState.UNMAPPED: errno.ENODEV,
}


class RnbdClient:
    """The devices of one session; `handle` takes the RTRS client's actions for this layer.

    While no path is connected requests fail with EIO, as those of rnbd_client do. `data` returns
    all data of a slot, `max_io_size` bytes or more, writable.
    """

    def __init__(self, rtrs: Requester, data: Callable[[int], memoryview], log: Log) -> None:
        self.name = rtrs.name
        """The name of the session."""
        self._rtrs = rtrs
        self._data = data
        self._log = log
        self._flights = Flights(rtrs)
        self._actions: list[ClientAction] = []
        self.devices: list[ClientDevice] = []
        """All devices that are mapped or being mapped, in the order of mapping."""
        self._mailbox = Mailbox(rtrs, data, self._flights, self.release)
        self._refused: deque[ClientDevice] = deque()
        self._ready = False
        self._ended = False
        self.unmapping = 0
        """The number of devices whose end the server has not answered yet."""
        self.version = 0
        """The version of the protocol, known after the server's answer."""

    @property
    def max_io_size(self) -> int:
        """The most bytes of data of one request."""
        return self._rtrs.max_io_size

    @property
    def deadline(self) -> float | None:
        """Return the time at which `expire` has something to do, None for never."""
        return self._flights.deadline

    def expire(self, now: float) -> None:
        """Do what is due at the time `now`."""
        self._flights.expire(now)

    def take_actions(self) -> list[ClientAction]:
        """Return the actions since the last call."""
        taken, self._actions = self._actions, []
        return taken

    def handle(self, action: Finished | LinkChanged | Opened | Closed, now: float) -> None:
        """Take an action of the RTRS client."""
        if isinstance(action, Finished):
            self._flights.finish(action.slot, action.errno, now)
        elif isinstance(action, LinkChanged):
            self._link_changed(action.up, now)
        elif isinstance(action, Closed):
            self._closed()
        elif action.path is None and action.errno:
            self._introduced(action.errno, b"", now)
        elif action.path is None:
            self._mailbox.introduce(self._introduced, now)

    # -- devices ------------------------------------------------------------------------------

    def map(self, name: str, access: AccessMode, now: float) -> ClientDevice:
        """Map a device; `Mapped` follows. May be called before the session is there.

        Raises `FileExistsError` for one that is mapped, `ValueError` for a bad name.
        """
        messages.pack_open(name, access)
        if any(device.name == name for device in self.devices):
            raise FileExistsError(errno.EEXIST, f"{name} is mapped")
        device = ClientDevice(name, access)
        self.devices.append(device)
        if self._ready:
            self._open(device, now)
        return device

    def remap(self, device: ClientDevice, now: float) -> None:
        """Open a device again that is offline; `Remapped` follows.

        Raises `OSError`: ENODEV, EALREADY, EBUSY as the file remap_device.
        """
        if device.state != DeviceState.DISCONNECTED:
            raise OSError(_NOT_REMAPPED[device.state], f"{device.name} is {device.state.value}")
        self._open(device, now)

    def unmap(self, device: ClientDevice, now: float) -> None:
        """Unmap a device; `Unmapped` follows. Raises `OSError` with EALREADY the second time."""
        was_mapped = device.state == DeviceState.MAPPED
        self._remove(device)

        def over(error: int, answer: bytes, now: float) -> None:
            self.unmapping -= 1
            self._actions.append(Unmapped(device))

        self.unmapping += 1
        if was_mapped and not self._ended:
            self._mailbox.close(device.number, over, now)
        else:
            over(0, b"", now)

    def resize(self, device: ClientDevice, sectors: int) -> None:
        """Change the size of a device; raises `OSError` with ENOENT unless it is mapped."""
        if device.state != DeviceState.MAPPED:
            raise OSError(errno.ENOENT, f"{device.name} is not open")
        if device.geometry.sectors != sectors:
            device.geometry = device.geometry._replace(sectors=sectors)
            self._actions.append(Resized(device))

    # -- requests of the block layer ----------------------------------------------------------

    def get_permit(self, device: ClientDevice, cpu: int = 0) -> Permit | None:
        """Return the right to one request, or None, after which `PermitFree` follows."""
        permit = self._rtrs.get_permit(cpu=cpu)
        if permit is None and device not in self._refused:
            self._refused.append(device)
        return permit

    def data(self, permit: Permit) -> memoryview:
        """Return a request's memory, which for a write is filled before `submit`."""
        return self._data(permit.slot)

    def submit(
        self, device: ClientDevice, permit: Permit, request: BlockRequest, tag: int, now: float
    ) -> None:
        """Start a request; `Done` with `tag` follows. The permit stays the caller's."""
        if device.state != DeviceState.MAPPED:
            self._actions.append(Done(device, tag, permit, errno.EIO))
        elif request.length > self.max_io_size and request.operation <= rnbd.Operation.WRITE:
            self._actions.append(Done(device, tag, permit, errno.EINVAL))
        else:
            flight = IoFlight(device, permit, request, tag, self._flights, self._tell)
            self._flights.start(flight, now)

    def release(self, permit: Permit, now: float) -> None:
        """Give a permit back; its slot belongs to others from now on."""
        self._rtrs.put_permit(permit)
        if self._mailbox.send_next(now):
            return
        while self._refused:
            device = self._refused.popleft()
            if device.state != DeviceState.UNMAPPED:
                self._actions.append(PermitFree(device))
                return

    # -- the session --------------------------------------------------------------------------

    def _introduced(self, error: int, answer: bytes, now: float) -> None:
        error = error or self._take_version(answer)
        self._actions.append(SessionReady(error))
        self._ready = not error
        for device in list(self.devices):
            if error:
                self._map_failed(device, error)
            else:
                self._open(device, now)

    def _link_changed(self, up: bool, now: float) -> None:
        """Follow rnbd_client: introduce the session anew and open every device again."""
        if not self._ready:
            return
        if not up:
            self._all_offline()
            return
        self._mailbox.introduce(self._introduced_again, now)
        for device in self.devices:
            if device.state != DeviceState.INIT:
                self._open(device, now)

    def _introduced_again(self, error: int, answer: bytes, now: float) -> None:
        error = error or self._take_version(answer)
        if error:
            self._log(f"session {self.name}: the server refused SESS_INFO: {error}")

    def _take_version(self, answer: bytes) -> int:
        """Take the version out of an answer to SESS_INFO; returns 0 or an errno."""
        try:
            version = messages.parse_session(answer, MessageType.SESS_INFO_RSP)
        except MessageError as error:
            self._log(f"session {self.name}: {error}")
            return errno.EINVAL
        self.version = min(version, rnbd.VERSION_MAJOR)
        return 0

    def _closed(self) -> None:
        self._ended = True
        self._ready = False
        self._mailbox.clear()
        self._all_offline()
        self._actions.append(SessionClosed())

    def _open(self, device: ClientDevice, now: float) -> None:
        def answered(error: int, answer: bytes, now: float) -> None:
            self._device_opened(device, error, answer, now)

        self._mailbox.open(device, answered, now)

    # -- answers about devices ----------------------------------------------------------------

    def _device_opened(self, device: ClientDevice, error: int, answer: bytes, now: float) -> None:
        first = device.state == DeviceState.INIT
        error = error or self._take_geometry(device, answer, now)
        if not first:
            self._actions.append(Remapped(device, error))
        elif error:
            self._map_failed(device, error)
        else:
            self._actions.append(Mapped(device, 0))

    def _take_geometry(self, device: ClientDevice, answer: bytes, now: float) -> int:
        """Take the server's answer about a device; returns 0 or an errno.

        After an errno the server has closed the device.
        """
        try:
            number, geometry = messages.parse_opened(answer)
        except MessageError:
            return errno.EINVAL
        wrong = self._opened_as(device, number, geometry)
        if wrong:
            self._mailbox.close(number, _nobody_waits, now)
        return wrong

    def _opened_as(self, device: ClientDevice, number: int, geometry: Geometry) -> int:
        """Take number and sizes of a device that the server has opened; returns 0 or an errno.

        An errno says that the device is not wanted any more or cannot be used.
        """
        if device.state == DeviceState.UNMAPPED:
            return errno.ENOENT
        if not geometry.logical_block_size or geometry.sectors >= MAX_SECTORS:
            return errno.EINVAL
        before, old = device.state, device.geometry
        device.number, device.geometry = number, geometry
        device.state = DeviceState.MAPPED
        if before != DeviceState.INIT and old.sectors != geometry.sectors:
            self._actions.append(Resized(device))
        return 0

    # -- the list of devices ------------------------------------------------------------------

    def _remove(self, device: ClientDevice) -> None:
        """Forget a device. Raises `OSError` with EALREADY the second time."""
        if device.state == DeviceState.UNMAPPED:
            raise OSError(errno.EALREADY, f"{device.name} is unmapped")
        device.state = DeviceState.UNMAPPED
        self.devices.remove(device)

    def _map_failed(self, device: ClientDevice, error: int) -> None:
        self._remove(device)
        self._actions.append(Mapped(device, error))

    def _all_offline(self) -> None:
        for device in self.devices:
            if device.state == DeviceState.MAPPED:
                device.state = DeviceState.DISCONNECTED
                self._actions.append(Offline(device))

    def _tell(self, action: ClientAction) -> None:
        self._actions.append(action)


def _nobody_waits(error: int, answer: bytes, now: float) -> None:
    """Do nothing with the answer to a message whose outcome changes nothing."""
