"""The QMP client against a scripted peer on a socket pair."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from bluebridge.host_tools.machine.qmp import Qmp, QmpError

GREETING: dict[str, Any] = {"QMP": {"version": {}, "capabilities": []}}


class Peer:
    """Plays QEMU: greets, then answers each request with the next script entry."""

    def __init__(self, *answers: Sequence[object]) -> None:
        self.client, self._server = socket.socketpair()
        self.requests: list[dict[str, Any]] = []
        self._answers = answers
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        stream = self._server.makefile("rwb", buffering=0)
        stream.write(json.dumps(GREETING).encode() + b"\r\n")
        for messages in ([{"return": {}}], *self._answers):
            self.requests.append(json.loads(stream.readline()))
            for message in messages:
                text = message if isinstance(message, bytes) else json.dumps(message).encode()
                stream.write(text + b"\r\n")
        stream.close()
        self._server.close()


def test_command_events_and_arguments() -> None:
    peer = Peer([{"event": "RESUME"}, {"return": {"status": "running"}}])
    qmp = Qmp(peer.client)
    assert qmp.command("device_add", bus_name="x") == {"status": "running"}
    assert qmp.events == [{"event": "RESUME"}]
    assert [r["execute"] for r in peer.requests] == ["qmp_capabilities", "device_add"]
    assert peer.requests[1]["arguments"] == {"bus-name": "x"}


def test_refusal_garbage_and_hang_up() -> None:
    peer = Peer(
        [{"error": {"class": "GenericError", "desc": "no such thing"}}],
        [b"not json"],
        [b"[" * 5000],
    )
    qmp = Qmp(peer.client)
    with pytest.raises(QmpError, match="no such thing"):
        qmp.command("nonsense")
    for _ in range(2):
        with pytest.raises(QmpError, match="not JSON"):
            qmp.command("stop")
    with pytest.raises(QmpError, match="closed its control socket"):
        qmp.command("stop")


def test_silence_ends_at_the_time_limit() -> None:
    client, server = socket.socketpair()
    with server, pytest.raises(QmpError, match="does not answer"):
        Qmp(client, timeout=0.2)
