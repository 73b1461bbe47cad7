"""What the next event of bridges and DMA engines can be an effect of."""

from __future__ import annotations

from bluebridge.device.buslog.reader import Event
from bluebridge.host_tools.analyzer.activity.activity import Activity, ActivityKind
from bluebridge.host_tools.analyzer.activity.bridge_doorbells import Rung
from bluebridge.host_tools.analyzer.activity.bridge_windows import WindowAccess
from bluebridge.host_tools.analyzer.activity.engine_channel import EngineChannel, Running
from bluebridge.host_tools.analyzer.activity.lone import lone
from bluebridge.host_tools.analyzer.activity.part import MAX_PARTS
from bluebridge.host_tools.analyzer.activity.resets import PAUSE_SECONDS
from bluebridge.host_tools.analyzer.analysis.transaction import Tlp, Transaction
from bluebridge.host_tools.analyzer.decode import decode


class CurrentActivity:
    """At most one of `window`, `access`, `rung` and `engine` is under way.

    `given` are activities that are complete. `unmasks`: the access changes which doorbells
    interrupt. `answered` are reads at the peer whose access follows in the log.
    """

    def __init__(self) -> None:
        self.given: list[Activity] = []
        self.window: WindowAccess | None = None
        self.access: Activity | None = None
        self.unmasks = False
        self.rung: Rung | None = None
        self.engine: EngineChannel | None = None
        self.answered: list[tuple[Event, Transaction]] = []
        self._config_place = 0  # of the last access, if they are of config space

    def take(self, given: list[Activity]) -> None:
        """Give these out."""
        self.given += given
        given.clear()

    def close(self) -> None:
        """Nothing more follows of what the last access caused."""
        if self.window is not None:
            self.given.append(self.window.finished())
            self.window = None
        if self.access is not None:
            self.given.append(self.access)
            self.access = None
        if self.engine is not None:
            self.engine.close_if_over()
            self.take(self.engine.given)
            self.engine = None
        if self.answered:
            self.given += [lone(*each) for each in self.answered]
            self.answered = []
        self.rung = None
        self.unmasks = False

    def begin(self, activity: Activity) -> None:
        """An access whose effects may follow."""
        self.close()
        self.access = activity

    def alone(self, event: Event, one: Transaction) -> None:
        """An event that belongs to nothing else."""
        self.close()
        self.given.append(lone(event, one))

    def effect(self, one: Transaction) -> bool:
        """List something with what caused it; whether there is a cause."""
        if self.window is not None:
            self.window.arrived(one)
        elif self.engine is not None and self.engine.running is not None:
            self.engine_effect(self.engine.running, one)
        elif self.rung is not None and len(self.rung.activity.transactions) < MAX_PARTS:
            self._remote(self.rung.activity, one)
            self.rung.activity.add(one, 0)
        elif self.access is not None and len(self.access.transactions) < MAX_PARTS:
            self._remote(self.access, one)
            config = self.access.kind is ActivityKind.CONFIG
            self.access.add(one, self._config_place if config else 0)
        else:
            return False
        return True

    @staticmethod
    def _remote(activity: Activity, one: Transaction) -> None:
        one.remote = one.device.partition(".")[0] != activity.device.partition(".")[0]

    def engine_effect(self, running: Running, one: Transaction) -> None:
        """List something with the descriptor that caused it."""
        activity = running.activity
        self._remote(activity, one)
        place = activity.add(one, running.last_write)
        if running.moving is not None and one.tlp is not Tlp.MEMORY_READ:
            running.moving.append(place)  # the write that caused it is logged behind it

    def mover(self) -> int | None:
        """The descriptor that writes to a register now."""
        running = self.engine.running if self.engine is not None else None
        return running.activity.number if running and running.moving is not None else None

    def take_engine(self) -> None:
        """Give out what the current channel has completed."""
        if self.engine is not None:
            self.take(self.engine.given)

    def changes_link(self) -> bool:
        """Whether what happens now has changed the link, which interrupts on both sides."""
        access = self.access
        return access is not None and access.kind in (ActivityKind.LINK, ActivityKind.RESET)

    def config(self, event: Event, one: Transaction) -> None:
        """Config space; accesses in a row are one activity, as those of HCAs are."""
        run = self.access
        if (
            run is not None
            and run.kind is ActivityKind.CONFIG
            and run.device == event.device
            and one.time - run.end < PAUSE_SECONDS
            and len(run.transactions) < MAX_PARTS
        ):
            one.text = decode(event)
            self._config_place = run.add(one)
            return
        self.begin(lone(event, one))
        self._config_place = 0
