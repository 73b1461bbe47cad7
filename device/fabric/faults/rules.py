"""The fault rules of a server, by their numbers."""

from __future__ import annotations

from typing import Final

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.fault_log import FaultLog
from bluebridge.device.fabric.faults.rule import Rule
from bluebridge.device.fabric.faults.stage import FaultStage, Later, LinkFaults
from bluebridge.device.fabric.interface import FabricPort, StagedFabric

MOST_RULES: Final = 64


class FaultRules:
    """The fault rules of all links; a link is named like `a/1`, by HCA and port.

    `later` calls an action after so many seconds; `events` gets what the rules do.
    """

    def __init__(self, later: Later, events: EventLog) -> None:
        self._later = later
        self._log = FaultLog(events)
        self._stages: dict[StagedFabric, FaultStage] = {}
        self._links: dict[str, tuple[LinkFaults, FaultStage]] = {}
        self._rules: dict[int, tuple[str, Rule]] = {}
        self._number = 0

    def add_link(self, name: str, device: str, port: FabricPort, fabric: StagedFabric) -> None:
        """Let `port` of `fabric` have rules, logged as what happens to `device`."""
        stage = self._stages.get(fabric)
        if stage is None:
            stage = self._stages[fabric] = FaultStage(fabric, self._later, self._log)
        self._links[name] = LinkFaults(port, device), stage

    def add(self, name: str, rule: Rule) -> int:
        """Put a rule into force; returns its number.

        Raises `ValueError` when there is no such link, or there are too many rules.
        """
        if name not in self._links:
            raise ValueError(f"there is no link {name!r}, but {', '.join(self._links)}")
        if len(self._rules) >= MOST_RULES:
            raise ValueError(f"there are {MOST_RULES} rules already: remove some")
        link, stage = self._links[name]
        self._number += 1
        rule.number = self._number
        self._rules[rule.number] = name, rule
        stage.add(link, rule)
        return rule.number

    def release(self, number: int) -> None:
        """Deliver the messages that a rule keeps; the rule stays. Raises `ValueError`."""
        name, rule = self._find(number)
        link, stage = self._links[name]
        stage.release(link, rule)

    def remove(self, number: int) -> None:
        """End a rule and deliver the messages that it keeps. Raises `ValueError`."""
        name, rule = self._find(number)
        link, stage = self._links[name]
        del self._rules[number]
        stage.remove(link, rule)

    def end(self, rule: Rule) -> None:
        """End a rule and deliver the messages that it keeps, unless it has ended already."""
        if rule.number in self._rules:
            self.remove(rule.number)

    def remove_all(self, name: str | None = None) -> None:
        """End all rules, or those of one link."""
        for number, (link, _) in list(self._rules.items()):
            if name in (None, link):
                self.remove(number)

    def table(self) -> list[tuple[str, Rule]]:
        """Return the rules in the order they came, each with the name of its link."""
        return list(self._rules.values())

    def _find(self, number: int) -> tuple[str, Rule]:
        if number not in self._rules:
            raise ValueError(f"there is no rule {number}")
        return self._rules[number]
