"""Faults by name of bridges and DMA engines: where they strike those of a guest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bluebridge.device.dma.engine import DmaEngine
from bluebridge.device.layout.buslog import Kind
from bluebridge.device.layout.ioat.registers import ChannelError
from bluebridge.device.layout.mlx4.faults import Effect
from bluebridge.device.mlx4.armed_faults import ArmedFault, ArmedFaults
from bluebridge.device.ntb.fault_points import FaultPoints
from bluebridge.device.ntb.window import Window
from bluebridge.device.pci.host import MasterBus


@dataclass(frozen=True, slots=True)
class GuestBridge:
    """The places where faults strike a guest: its bridge, the one at the other end, its engines.

    `mapped` says that the peer's memory is mapped into the guest, so that no access passes here.
    """

    bus: MasterBus
    own: FaultPoints | None
    far: FaultPoints | None
    engines: Sequence[DmaEngine]
    armed: ArmedFaults
    mapped: bool = False

    def begin(self, fault: ArmedFault) -> None:
        """Put a fault into force and say what undoes it; raises `ValueError`."""
        for other in self.armed.table():
            if (other.effect, other.target) == (fault.effect, fault.target):
                raise ValueError(f"{fault.name} is fault {other.number} already")
        if fault.effect is Effect.DMA_ERROR:
            self._fail_copies(fault)
        elif self.own is None or self.far is None:
            raise ValueError("the guest has no bridge: start the pair with `bluebridge up --ntb`")
        elif fault.effect is Effect.SCRATCHPAD_STUCK:
            _stick(self.own, fault)
        elif fault.effect is Effect.DOORBELL_LOST:
            _lose(self.far, fault, self._taking(fault, "a doorbell"))
        else:
            if self.mapped:
                raise ValueError("with --window-alias no access through the window can be refused")
            _refuse(list(self.far.windows()), fault, self._taking(fault, "an access"))

    def _taking(self, fault: ArmedFault, what: str) -> Callable[[], bool]:
        """Return what decides of each thing whether the fault takes it, and logs that."""

        def takes() -> bool:
            taken = fault.takes()
            if taken:
                self.bus.note(Kind.FAULT, f"fault {fault.number} {fault.name}: {what}")
            return taken

        return takes

    def _fail_copies(self, fault: ArmedFault) -> None:
        if not self.engines:
            raise ValueError("the guest has no DMA engine: start the pair with `--dma`")
        takes, error = self._taking(fault, "a descriptor"), ChannelError(fault.status)
        channels = [channel for engine in self.engines for channel in engine.channels]

        def undo() -> None:
            for channel in channels:
                channel.refusal = None

        for channel in channels:
            channel.refusal = lambda: error if takes() else None
        fault.undo = undo


def _stick(points: FaultPoints, fault: ArmedFault) -> None:
    if fault.target >= len(points.scratchpads):
        count = len(points.scratchpads)
        raise ValueError(f"the bridge has scratchpads 0 to {count - 1}" if count else
                         "this model of a bridge has no scratchpads")  # fmt: skip
    offset, stuck = points.scratchpads[fault.target], points.registers.stuck
    stuck.add(offset)
    fault.undo = lambda: stuck.discard(offset)


def _lose(points: FaultPoints, fault: ArmedFault, takes: Callable[[], bool]) -> None:
    points.loses_ring = takes

    def undo() -> None:
        points.loses_ring = None

    fault.undo = undo


def _refuse(windows: Sequence[Window], fault: ArmedFault, takes: Callable[[], bool]) -> None:
    def set_all(refuses: Callable[[], bool] | None) -> None:
        for window in windows:
            window.refuses = refuses

    set_all(takes)
    fault.undo = lambda: set_all(None)
