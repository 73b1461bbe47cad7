"""The client of a guest's agent, class `Agent`: commands and files in the guest."""

from __future__ import annotations

import contextlib
import io
import os
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from bluebridge.guest.agent.frames import PAYLOAD_BYTES
from bluebridge.host_tools.agent import messages, ports
from bluebridge.host_tools.agent.connection import AgentConnection
from bluebridge.host_tools.agent.errors import AgentError, AgentForgot, AgentRefused
from bluebridge.host_tools.agent.guest_command import Command, Completed, Sink, spell
from bluebridge.host_tools.processes import Alarm, first

_ENTROPY_BYTES = 64
_LOCAL = b"\x02"  # first byte of a MAC address that no manufacturer owns

_START_SECONDS = 120.0
_RUN_SECONDS = 60.0
_MOST_OUTPUT = 8 << 20
"""The bytes of output that a command may print, and those of a file that is read into memory."""
_MOST_UNKNOWN = 64 << 20
"""The bytes that a file may have whose size its guest cannot tell, as those of /proc."""
_ALWAYS = 1 << 20
"""The size up to which a file is copied however full the disk is."""
_FREE_PART = 20
"""A longer one leaves one part in so many of the disk free."""
_PIECE = 8 * PAYLOAD_BYTES

Moved = Callable[[int], None]
"""Called with the number of bytes of each piece of a file that has been copied."""


@dataclass(frozen=True)
class Identity:
    """Host name, machine-id, boot id and MAC prefix; random unless given."""

    hostname: str
    machine_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The machine-id: 32 hexadecimal digits."""
    boot_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    """A UUID, which the guest's /proc/sys/kernel/random/boot_id shows from then on."""
    mac_prefix: bytes = field(default_factory=lambda: _LOCAL + os.urandom(4))
    """Five bytes; the guest's virtio NICs add their number as the sixth."""

    def request(self) -> dict[str, Any]:
        """Return the message to the agent: the identity, fresh randomness, and the time of now."""
        return {
            "op": "personalise",
            "hostname": self.hostname,
            "machine_id": self.machine_id,
            "boot_id": self.boot_id,
            "mac_prefix": self.mac_prefix.hex(),
            "entropy": os.urandom(_ENTROPY_BYTES).hex(),
            "clock": time.time(),
        }


class Agent:
    """A client of the agent of one guest. Several threads may use it, and commands may overlap."""

    def __init__(self, connection: AgentConnection, port: ports.Port | None = None) -> None:
        """Use a connection that is synchronised; programs call `connect` instead."""
        self.guest = connection.guest
        self.connection = connection
        self._port = port

    @classmethod
    def connect(
        cls,
        guest: str,
        sockets: Sequence[Path],
        timeout: float = _START_SECONDS,
        alarms: Sequence[Alarm] = (),
    ) -> Agent:
        """Connect to the first free one of the guest's sockets; waits for the agent to start.

        `alarms` are looked at in this and all later waits. Raises `AgentError` or what they report.
        """
        port = ports.acquire(guest, sockets, min(timeout, 10.0), partial(first, alarms))
        connection = AgentConnection(guest, port.connection)
        connection.alarms += alarms
        agent = cls(connection, port)
        try:
            connection.synchronise(timeout)
        except BaseException:
            agent.close()
            raise
        return agent

    def close(self) -> None:
        """Close the connection; the agent kills the commands that it still runs for this client."""
        self.connection.close()
        if self._port is not None:
            self._port.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Commands.

    def start(
        self,
        command: str | Sequence[str],
        timeout: float | None = None,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | BinaryIO | None = None,
        terminal: os.terminal_size | None = None,
    ) -> Command:
        """Start a command, a shell line or a list of words, and return at once.

        `timeout` (seconds) is kept in the guest, which kills the command and all of its session.
        With `terminal` its streams are a terminal of that size, and all output is "stdout".
        """
        request: dict[str, Any] = {"op": "run", "timeout": timeout, "stdin": stdin is not None}
        if terminal is not None:
            request["tty"] = {"rows": terminal.lines, "columns": terminal.columns}
        request |= {"cwd": cwd, "env": dict(env or {})}
        request["shell" if isinstance(command, str) else "argv"] = (
            command if isinstance(command, str) else list(command)
        )
        spelling = spell(command)
        operation = self.connection.open(request, f"`{spelling}`", messages.RUN)
        started = Command(self.guest, spelling, operation, timeout)
        if stdin is not None:
            started.feed(stdin)
        return started

    def run(
        self,
        command: str | Sequence[str],
        timeout: float | None = _RUN_SECONDS,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | BinaryIO | None = None,
        on_output: Sink | None = None,
        check: bool = False,
        most: int | None = _MOST_OUTPUT,
    ) -> Completed:
        """Run a command to its end. Arguments as for `start` and `Command.wait`.

        Raises `AgentRefused` when it cannot be started, `CommandTimedOut`, `AgentCommandFailed`
        when `check` and its status is not zero, and `AgentLost`, `AgentSilent` or `AgentForgot`.
        """
        started = self.start(command, timeout, cwd=cwd, env=env, stdin=stdin)
        completed = started.wait(on_output, most)
        if check and completed.status != 0:
            raise started.failed(completed)
        return completed

    # Files.

    def put(
        self, source: Path | bytes, target: str, mode: int | None = None, moved: Moved | None = None
    ) -> str:
        """Copy a file, or bytes, into the guest; returns its path there.

        `target` may be a folder, or end in /. The mode is that of the source unless given; `moved`
        is told of each piece. Raises `AgentError`; no part of a file ever stands under its final
        name.
        """
        if isinstance(source, bytes):
            return self.put_stream(io.BytesIO(source), "", target, 0o644 if mode is None else mode)
        try:
            with source.open("rb") as stream:
                chosen = os.fstat(stream.fileno()).st_mode if mode is None else mode
                return self.put_stream(stream, source.name, target, chosen & 0o7777, moved)
        except OSError as error:
            raise AgentError(f"{source}: {error.strerror}") from error

    def put_stream(
        self, stream: BinaryIO, name: str, target: str, mode: int, moved: Moved | None = None
    ) -> str:
        """Copy what a stream gives into the guest, as `put` does; `name` is used in a folder."""
        request = {"op": "put", "path": target, "name": name, "mode": mode}
        operation = self.connection.open(request, "put", messages.PUT)
        size = checksum = 0
        try:
            while data := stream.read(_PIECE):
                if not operation.send(data):
                    break  # it failed; the result says why
                size += len(data)
                checksum = zlib.crc32(data, checksum)
                if moved is not None:
                    moved(len(data))
            else:
                operation.end({"size": size, "checksum": checksum})
            return str(operation.result()["path"])
        except BaseException:
            with contextlib.suppress(AgentError):
                operation.give_up()
            raise

    def get(self, source: str, target: Path, moved: Moved | None = None) -> Path:
        """Copy a file out of the guest, with its mode; returns its path here.

        `target` may be a folder; `moved` is told of each piece. Raises `AgentError`, also for a
        file that would fill the disk or is longer than announced; a partial file is removed.
        """
        if target.is_dir():
            target = target / os.path.basename(source)
        partial = target.with_name(f".{target.name}.{os.urandom(6).hex()}.partial")
        try:
            with partial.open("xb") as stream:
                disk = os.statvfs(target.parent)
                free = disk.f_bavail - disk.f_blocks // _FREE_PART
                room = max(_ALWAYS, free * disk.f_frsize)
                result = self._get(source, stream, room, f"free space in {target.parent}", moved)
            partial.chmod(result["mode"] & 0o777)
            partial.replace(target)
        except OSError as error:
            raise AgentError(f"{target}: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
        return target

    def read(self, source: str) -> bytes:
        """Return the content of a file of at most 8 MiB in the guest. Raises `AgentError`."""
        stream = io.BytesIO()
        self._get(source, stream, _MOST_OUTPUT, "copy it to a file")
        return stream.getvalue()

    def _get(
        self, source: str, stream: BinaryIO, room: int, mend: str, moved: Moved | None = None
    ) -> dict[str, Any]:
        """Write a file of up to `room` bytes to `stream`; `mend` is for a longer one."""
        operation = self.connection.open({"op": "get", "path": source}, "get", messages.GET)
        size = checksum = 0
        try:
            announced = operation.size()
            limit = min(room, _MOST_UNKNOWN) if announced is None else announced
            if limit > room:
                what = f"guest {self.guest}: {source} has {limit} bytes, and {room} may come here"
                raise AgentError(what, mend)
            while (piece := operation.receive()) is not None:
                size += len(piece[1])
                if size > limit:
                    raise AgentError(
                        f"guest {self.guest}: {source}: more than {limit} bytes arrive, "
                        f"{'its size is not known' if announced is None else 'as announced'}",
                        "copy it within the guest and take the copy",
                    )
                stream.write(piece[1])
                checksum = zlib.crc32(piece[1], checksum)
                if moved is not None:
                    moved(len(piece[1]))
        except BaseException:
            with contextlib.suppress(AgentError):
                operation.give_up()
            raise
        result = operation.result()
        if (result["size"], result["checksum"]) != (size, checksum):
            raise AgentRefused(self.guest, "get", "checksum", f"{source}: arrived damaged")
        return result

    # The guest itself.

    def ping(self) -> dict[str, Any]:
        """Ask whether the agent lives; return facts about it. Raises `AgentError`.

        They are version, protocol, python, pid, hostname, uptime, clock, operations.
        """
        return self._ask({"op": "ping"}, "ping", messages.PING)

    def personalise(self, identity: Identity) -> dict[str, Any]:
        """Set names, MACs, clock and randomness of the guest; return what was set."""
        return self._ask(identity.request(), "personalise")

    def _ask(
        self, request: dict[str, Any], what: str, result: messages.Table = messages.ANY
    ) -> dict[str, Any]:
        """Return the answer to a request that may be repeated if the answer gets lost."""
        with contextlib.suppress(AgentForgot):
            return self.connection.open(request, what, result).result()
        return self.connection.open(request, what, result).result()

    def functions(self) -> list[dict[str, str]]:
        """Return the guest's PCI functions: `address` (0000:01:00.0), `id` (15b3:1003), `driver`.

        Raises `AgentError`.
        """
        found = self._ask({"op": "functions"}, "functions", messages.FUNCTIONS)["functions"]
        return [dict(function) for function in found]

    def bind(self, address: str, driver: str) -> None:
        """Bind a PCI function to a driver that is loaded. Raises `AgentRefused`."""
        request = {"op": "bind", "address": address, "driver": driver}
        self._ask(request, "bind")

    def poweroff(self) -> None:
        """Switch the guest off; QEMU ends soon after this returns."""
        self._ask({"op": "poweroff"}, "poweroff")
