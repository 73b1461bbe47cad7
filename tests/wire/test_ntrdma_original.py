"""NTRDMA through bridges of both generations against a strict peer of version 0.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bluebridge.guest.ntrdma.provider.device import NtrdmaDevice
from tests.models.ntrdma_original.contract import OriginalContract, Start
from tests.models.ntrdma_original.port import Original
from tests.wire import ntrdma_pair


@pytest.fixture(
    scope="module", params=["intel-gen4", pytest.param("intel-gen1", marks=pytest.mark.full)]
)
def folder(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Where a running server has its sockets."""
    path = tmp_path_factory.mktemp("original")
    with ntrdma_pair.server(path, "--ntb-model", request.param):
        yield path


@pytest.mark.parametrize(
    "dma",
    [pytest.param(True, id="ntb+dma"), pytest.param(False, id="ntb+cpu", marks=pytest.mark.full)],
    scope="class",
)
class TestOriginal(OriginalContract):
    """By DMA engine and by processor, which both sides use alike."""

    @pytest.fixture
    def first(self) -> int:
        """Rings that have been in use; `test_original.py` has new ones as well."""
        return 29

    @pytest.fixture
    def device(self, folder: Path, dma: bool) -> Iterator[NtrdmaDevice]:
        """Our side."""
        with ntrdma_pair.opened(folder, "a", dma) as device:
            yield device

    @pytest.fixture
    def start(self, folder: Path, dma: bool) -> Start:
        """The peer."""

        @contextmanager
        def started(first: int) -> Iterator[Original]:
            with (
                ntrdma_pair.transport(folder, "b", dma) as back_end,
                Original(back_end, first) as original,
            ):
                yield original

        return started
