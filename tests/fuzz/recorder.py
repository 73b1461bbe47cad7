"""Listens to what is done to hosts and models, from outside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.fabric.subnet.manager import TrapSender
from bluebridge.device.mlx4.device import Hca
from bluebridge.device.rdma.ports.port import Port
from tests.fuzz import notes
from tests.fuzz.notes import BRIDGES
from tests.fuzz.tape import Tape
from tests.models.fake_bus import FakeFunction
from tests.models.fake_host import FakeHost


class Recorder:
    """Wraps methods of hosts and models; those called from inside of others do not count."""

    def __init__(self) -> None:
        self.tape: Tape | None = None
        self._depth = 0

    @contextmanager
    def taping(self) -> Iterator[Tape]:
        """What is done meanwhile."""
        self.tape = Tape()
        try:
            yield self.tape
        finally:
            self.tape = None

    def wrap(self, cls: type, name: str, note: Callable[..., None], after: bool = False) -> None:
        """Call `note(tape, instance, arguments)` with outer calls of a method."""
        original = getattr(cls, name)

        @wraps(original)
        def method(self_: Any, *words: Any, **more: Any) -> Any:
            tape = self.tape
            outer = tape is not None and not self._depth
            if outer and not after:
                note(tape, self_, *words, **more)
            self._depth += 1
            try:
                return original(self_, *words, **more)
            finally:
                self._depth -= 1
                if outer and after:
                    note(tape, self_, *words, **more)

        setattr(cls, name, method)

    def listen(self) -> None:
        """Wrap all that is written down."""
        self.wrap(FakeHost, "poke", notes.poke)
        self.wrap(FakeHost, "run", notes.run)
        self.wrap(FakeHost, "turn", notes.run)
        self.wrap(FakeHost, "map", notes.map)
        self.wrap(FakeHost, "unmap", notes.unmap)
        self.wrap(FakeFunction, "place_bar", notes.place)
        self.wrap(FakeFunction, "read_config", notes.config)
        self.wrap(FakeFunction, "set_config", notes.set_config)
        self.wrap(FakeFunction, "place", notes.master)
        self.wrap(Hca, "__init__", notes.hca, after=True)
        self.wrap(Hca, "fail", notes.fail)
        self.wrap(Port, "plug", notes.plug)
        self.wrap(TrapSender, "__init__", notes.unmanaged)
        for bridge in BRIDGES:
            self.wrap(bridge, "__init__", notes.bridge, after=True)
            self.wrap(bridge, "store_run", notes.run_store)
        self.wrap(DmaEngine, "__init__", notes.engine, after=True)
        for model in (Hca, DmaEngine, *BRIDGES):
            self.wrap(model, "bar_write", notes.store)
            self.wrap(model, "bar_read", notes.load)
            self.wrap(model, "reset", notes.reset)
