"""The outbox in which the parts of an engine leave their actions."""

from __future__ import annotations

from bluebridge.guest.protocols.rtrs.engine.actions import Action


class Outbox:
    """The actions of an engine in the order in which they are to be carried out."""

    def __init__(self) -> None:
        self._actions: list[Action] = []

    def add(self, action: Action) -> None:
        """Append an action."""
        self._actions.append(action)

    def take(self) -> list[Action]:
        """Return all actions since the last call."""
        actions = self._actions
        self._actions = []
        return actions
