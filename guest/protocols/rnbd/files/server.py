"""The files of a server's open exports, as in the kernel's rnbd-srv-sysfs.c."""

from __future__ import annotations

from collections.abc import Mapping

from bluebridge.device.layout.net.rnbd import AccessMode
from bluebridge.guest.fuse.sysfs import command, text
from bluebridge.guest.fuse.tree import Answer, Directory, Link, Node, directory
from bluebridge.guest.protocols.rnbd.engine.exports import Export, OpenDevice
from bluebridge.guest.protocols.rnbd.engine.server import RnbdServer


class ServerFiles:
    """`tree` has `ctl/devices`, with a directory for each export that a session has open."""

    def __init__(self, server: RnbdServer) -> None:
        self._server = server
        self.tree = directory({"ctl": directory({"devices": Directory(self._devices)})})

    def _devices(self) -> Mapping[str, Node]:
        opened: dict[str, list[OpenDevice]] = {}
        for session in self._server.sessions:
            for device in session.opened():
                opened.setdefault(_name(device.export), []).append(device)
        return {name: self._device(devices) for name, devices in opened.items()}

    def _device(self, devices: list[OpenDevice]) -> Directory:
        sessions = {device.session.replace("/", "!"): self._session(device) for device in devices}
        children: dict[str, Node] = {"sessions": directory(sessions)}
        place = devices[0].export.backend.place
        if place:
            children["block_dev"] = Link(place)
        return directory(children)

    def _session(self, device: OpenDevice) -> Directory:
        def force_close(answer: Answer) -> None:
            self._server.force_close(device)
            answer.done()

        return directory(
            {
                "access_mode": text(lambda: device.access.name.lower()),
                "read_only": text(lambda: int(device.access == AccessMode.RO)),
                "mapping_path": text(lambda: device.name),
                "force_close": command("force_close", force_close),
            }
        )


def _name(export: Export) -> str:
    """Return an export's name as the name of a directory."""
    return export.name.strip("/").replace("/", "!")
