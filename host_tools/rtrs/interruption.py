"""One cut of a route, from the cut until the path works again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bluebridge.host_tools.rtrs.cuts import Cutter
from bluebridge.host_tools.rtrs.paths import PathState, Route
from bluebridge.host_tools.rtrs.session import Mapped

_LOOK_SECONDS = 0.5
Tell = Callable[[str], None]


@dataclass
class Interruption:
    """A route that is cut `seconds` long, and looked after until `deadline` (monotonic).

    A route over NTRDMA is cut by the client's order to disconnect its path.
    """

    mapped: Mapped
    cutter: Cutter
    route: Route
    say: Tell

    def run(self, seconds: float, deadline: float) -> bool:
        """Cut the route for `seconds`; return whether its path was given up. Raises `LabError`."""
        begin = time.monotonic()
        self._cut()
        self.say(f"{self._what} is cut")
        try:
            given_up = self._lost_before(begin + seconds)
            if given_up:
                self.say(f"{self.route.name} is given up")
            time.sleep(max(0.0, begin + seconds - time.monotonic()))
        finally:
            self._restore()
        self.say(f"{self._what} is restored")
        self._come_back(deadline)
        return given_up

    @property
    def _what(self) -> str:
        return self.route.port or self.route.name

    def _cut(self) -> None:
        if self.route.port:
            self.cutter.cut(self.route.port)
        else:
            self.mapped.client.disconnect(self.route)

    def _restore(self) -> None:
        """A path that was disconnected waits for an order."""
        if self.route.port:
            self.cutter.restore(self.route.port)
        else:
            self.mapped.client.reconnect(self.route)

    def _come_back(self, deadline: float) -> None:
        """Ask for a reconnect until it succeeds: the server may still have the old path."""
        while not self._state().connected and time.monotonic() < deadline:
            self.mapped.client.reconnect(self.route)
            time.sleep(_LOOK_SECONDS)
        if self._state().connected:
            self.say(f"{self.route.name} is connected")

    def _lost_before(self, deadline: float) -> bool:
        while self._state().connected:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _state(self) -> PathState:
        states = {state.name: state for state in self.mapped.client.statistics()}
        return states.get(self.route.name, PathState(self.route.name))
