"""The fault rules of a server, and the stage in front of delivery that applies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults import traits
from bluebridge.device.fabric.faults.roce_packets import packet_of
from bluebridge.device.fabric.faults.rule import IN, OUT, Rule, Traffic
from bluebridge.device.fabric.faults.traits import (
    Kept,
    change,
    flip,
    length_of,
    own,
    size_of,
    sort_of,
)
from bluebridge.device.fabric.interface import FabricPort, StagedFabric
from bluebridge.device.fabric.messages import Message
from bluebridge.device.layout.buslog import Kind, What

_WHAT: Final = {
    "request": int(What.REQUEST),
    "response": int(What.RESPONSE),
    "datagram": int(What.DATAGRAM),
    "frames": int(What.FRAME),
    "packet": int(What.FRAME),
}


class FaultLog:
    """The writer of a `Kind.FAULT` event for each message that a rule takes or delivers."""

    def __init__(self, events: EventLog) -> None:
        self._events = events

    def write(self, device: str, rule: Rule, direction: str, verb: str, message: Message) -> None:
        """Log that a rule of a link of `device` does what `verb` says to a message."""
        events = self._events
        if not events.active:
            return
        text = f"{rule.label}rule {rule.number} {verb} ({direction}): {traits.text_of(message)}"
        events.work, before = message.work, events.work
        try:
            events.record(
                events.device(device),
                int(Kind.FAULT),
                0,
                rule.number,
                traits.length_of(message),
                text.encode(),
                _WHAT[traits.kind_of(message)],
                max(traits.target_qpn(message), 0),
            )
        finally:
            events.work = before


MOST_KEPT: Final = 4096
MOST_KEPT_BYTES: Final = 128 << 20
"""Most messages of one link that wait, and most bytes they take; further ones are dropped."""

Later = Callable[[float, Callable[[], None]], object]
"""Function that calls an action after so many seconds, in order if times are equal."""


class LinkFaults:
    """The rules of one link, oldest first, and the messages and bytes that wait on it."""

    __slots__ = ("by_sort", "bytes", "device", "messages", "port", "rules", "traffic")

    def __init__(self, port: FabricPort, device: str) -> None:
        self.port = port
        self.device = device
        self.rules: list[Rule] = []
        self.by_sort: dict[int, list[Rule]] = {}
        """The rules that may take messages of a sort (`traits.sort_of`)."""
        self.traffic = Traffic()
        self.messages = 0
        self.bytes = 0

    def rules_for(self, message: Message, direction: str, sort: int) -> Iterator[Rule]:
        """Yield the rules that take a message in this direction, each asked as it is then.

        Which are asked follows from the `sort` of message that was sent.
        """
        place = None
        if any(rule.match.passage is not None for rule in self.rules):
            place = self.traffic.place(packet_of(message), direction)
        for rule in self.by_sort[sort]:
            if rule.takes(message, direction, place):
                yield rule

    def concerns(self, message: Message, sort: int) -> bool:
        """Return whether any rule may take a message, and note which for all of its sort."""
        self.by_sort[sort] = [rule for rule in self.rules if rule.match.may_hold(message)]
        return bool(self.by_sort[sort])

    def room_for(self, size: int) -> bool:
        """Return True if one more message of this size may wait."""
        return self.messages < MOST_KEPT and self.bytes + size <= MOST_KEPT_BYTES


class FaultStage:
    """The stage of one network, which is set as its `StagedFabric.stage` while there are rules.

    A message passes the rules of its sender's link, then those of each receiver's. The oldest rule
    that takes it decides; older ones that only change a packet let it go on. What a port sends to
    itself does not leave the adapter and meets none.
    """

    def __init__(self, fabric: StagedFabric, later: Later, log: FaultLog) -> None:
        self._fabric = fabric
        self._later = later
        self._log = log
        self._links: dict[FabricPort, LinkFaults] = {}
        self._concerned: dict[int, dict[FabricPort, LinkFaults]] = {}
        """The links with rules that may take messages of a sort, as far as it was asked."""
        self._serial = 0

    def add(self, link: LinkFaults, rule: Rule) -> None:
        """Add a rule behind those of its link."""
        link.rules.append(rule)
        self._links[link.port] = link
        self._concerned.clear()
        self._fabric.stage = self

    def remove(self, link: LinkFaults, rule: Rule) -> None:
        """End a rule of a link and deliver what it kept."""
        link.rules.remove(rule)
        self._concerned.clear()
        if not link.rules:
            link.traffic = Traffic()
            del self._links[link.port]
        if not self._links:
            self._fabric.stage = None
        self.release(link, rule)

    def release(self, link: LinkFaults, rule: Rule) -> None:
        """Deliver the messages that a rule keeps, in order, over as many turns as it takes."""
        for serial in list(rule.kept):
            self._deliver_after(0.0, link, rule, serial)

    def admit(
        self, source: FabricPort, targets: Sequence[FabricPort], message: Message
    ) -> tuple[Sequence[FabricPort], int]:
        """Return the ports that get a message now, once per copy, and the copies by rules."""
        sort = sort_of(message)
        links = self._concerned_by(message, sort)
        if not links:
            return targets, 0
        link = links.get(source)
        copies = 0
        others = [target for target in targets if target is not source]
        if link is not None and others:
            rule = self._rule_for(link, message, OUT, sort)
            if rule is not None:
                passed, copies = self._act(link, rule, Kept(message, source, others, OUT))
                targets = [*(target for target in targets if target is source), *passed]
        arriving, more = self._into(source, targets, message, sort)
        return arriving, copies + more

    def _concerned_by(self, message: Message, sort: int) -> dict[FabricPort, LinkFaults]:
        """Return the links with rules that may take a message, and remember them for its sort."""
        found = self._concerned.get(sort)
        if found is None:
            links = self._links.items()
            found = {port: link for port, link in links if link.concerns(message, sort)}
            self._concerned[sort] = found
        return found

    def _into(
        self, source: FabricPort, targets: Sequence[FabricPort], message: Message, sort: int
    ) -> tuple[Sequence[FabricPort], int]:
        """Return the same as `admit`, by the rules of the receivers' links."""
        links = self._concerned_by(message, sort)
        arriving: list[FabricPort] = []
        copies = 0
        for target in targets:
            link = None if target is source else links.get(target)
            rule = None if link is None else self._rule_for(link, message, IN, sort)
            if link is None or rule is None:
                arriving.append(target)
                continue
            passed, more = self._act(link, rule, Kept(message, source, [target], IN))
            arriving += passed
            copies += more
        return arriving, copies

    def _rule_for(
        self, link: LinkFaults, message: Message, direction: str, sort: int
    ) -> Rule | None:
        """Change a message as rules say; return the oldest that decides, None without one."""
        for rule in link.rules_for(message, direction, sort):
            if rule.change is None:
                return rule
            change(message, rule.change)
            self._log.write(link.device, rule, direction, rule.change.verb, message)
        return None

    def _act(self, link: LinkFaults, rule: Rule, found: Kept) -> tuple[Sequence[FabricPort], int]:
        """Carry out a rule; returns the ports that get the message now, and the copies made."""
        if rule.action == "drop":
            self._log.write(link.device, rule, found.direction, "drops", found.message)
            return [], 0
        if rule.action == "corrupt":
            self._log.write(link.device, rule, found.direction, "corrupts", found.message)
            if packet_of(found.message) is None:
                return [], 0  # what no check sum of ours covers: its receiver would drop it
            flip(found.message, hidden=False)
            return found.targets, 1
        if rule.action == "flip":
            self._log.write(link.device, rule, found.direction, "flips", found.message)
            flip(found.message)
            return found.targets, 1
        if rule.action == "duplicate":
            if not rule.seconds:
                self._log.write(link.device, rule, found.direction, "duplicates", found.message)
                return [*found.targets, *found.targets], 1
            self._keep(link, rule, found, "duplicates")
            return found.targets, 1
        self._keep(link, rule, found, "keeps" if rule.action == "rate" else f"{rule.action}s")
        return [], 1

    def _keep(self, link: LinkFaults, rule: Rule, found: Kept, verb: str) -> None:
        """Keep a copy of a message, for a time or until it is released."""
        size = size_of(found.message)
        if not link.room_for(size):
            rule.lost += 1
            self._log.write(link.device, rule, found.direction, "has no room for", found.message)
            return
        self._log.write(link.device, rule, found.direction, verb, found.message)
        link.messages += 1
        link.bytes += size
        self._serial += 1
        waits = rule.first_kept(found.direction) is not None
        copy = own(found.message)
        rule.kept[self._serial] = Kept(copy, found.source, found.targets, found.direction, size)
        if rule.action == "rate":
            if not waits:
                self._transmit(link, rule, self._serial)
        elif rule.action != "hold":
            self._deliver_after(rule.seconds, link, rule, self._serial)

    def _transmit(self, link: LinkFaults, rule: Rule, serial: int) -> None:
        """Deliver a message of a `rate` after the time that it takes; the next one follows."""
        bits = 8 * length_of(rule.kept[serial].message)
        self._deliver_after(bits / rule.bits_per_second, link, rule, serial)

    def _deliver_after(self, seconds: float, link: LinkFaults, rule: Rule, serial: int) -> None:
        self._later(seconds, lambda: self._deliver(link, rule, serial))

    def _deliver(self, link: LinkFaults, rule: Rule, serial: int) -> None:
        """Deliver a message that was kept, unless it was released already."""
        kept = rule.kept.pop(serial, None)
        if kept is None:
            return
        link.messages -= 1
        link.bytes -= kept.size
        self._log.write(link.device, rule, kept.direction, "delivers", kept.message)
        targets = kept.targets
        if kept.direction == OUT:
            targets, _ = self._into(kept.source, targets, kept.message, sort_of(kept.message))
        following = rule.first_kept(kept.direction) if rule.action == "rate" else None
        if following is not None:
            self._transmit(link, rule, following)
        self._fabric.deliver_late(targets, kept.message)


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
