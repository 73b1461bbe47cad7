"""NTRDMA over TCP against a strict peer of version 0.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from bluebridge.guest.ntrdma.transports.tcp import TcpTransport
from tests.models.ntrdma_original.contract import OriginalContract, Start
from tests.models.ntrdma_original.port import Original


class TestOriginal(OriginalContract):
    """Over a stream."""

    @pytest.fixture
    def device(self, free_port: int) -> Iterator[NtrdmaDevice]:
        """Our side, which waits for the peer."""
        with NtrdmaDevice(TcpTransport(f"s:127.0.0.1:{free_port}")) as device:
            yield device

    @pytest.fixture
    def start(self, device: NtrdmaDevice, free_port: int) -> Start:
        """The peer connects."""

        @contextmanager
        def started(first: int) -> Iterator[Original]:
            with Original(TcpTransport(f"c:127.0.0.1:{free_port}"), first) as original:
                yield original

        return started
