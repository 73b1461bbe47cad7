"""The fault rules of a server, and the stage in front of delivery that applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bluebridge.device.buslog.writer import EventLog
from bluebridge.device.fabric.faults.rule import ACTIONS, IN, OUT, Passed, Rule, Traffic
from bluebridge.device.fabric.faults.traits import Kept, Traits, change, flip, own, size_of, sort_of
from bluebridge.device.fabric.interface import FabricPort, Later
from bluebridge.device.fabric.local import LocalFabric
from bluebridge.device.fabric.messages import Message
from bluebridge.device.layout.buslog import What
from bluebridge.device.layout.events import Fact

MOST_KEPT: Final = 4096
MOST_KEPT_BYTES: Final = 128 << 20
"""Most messages of one link that wait, and most bytes they take; further ones are dropped."""
MOST_RULES: Final = 64
_WHAT: Final = {
    "request": int(What.REQUEST),
    "response": int(What.RESPONSE),
    "datagram": int(What.DATAGRAM),
    "frames": int(What.FRAME),
    "packet": int(What.FRAME),
}


class LinkFaults:
    """The rules of one link, oldest first, and the messages and bytes that wait on it.

    `by_sort` are the rules that may take messages of a sort (`traits.sort_of`).
    """

    __slots__ = ("_passed", "by_sort", "bytes", "device", "messages", "port", "rules", "traffic")

    def __init__(self, port: FabricPort, device: str, passed: Passed) -> None:
        self.port = port
        self.device = device
        self.rules: list[Rule] = []
        self.by_sort: dict[int, list[Rule]] = {}
        self._passed = passed
        self.forget()
        self.messages = 0
        self.bytes = 0

    def forget(self) -> None:
        """Begin to count the packets that pass."""
        self.traffic = Traffic(self._passed)

    def concerns(self, message: Message, sort: int) -> bool:
        """Return whether any rule may take a message, and note which for all of its sort."""
        it = Traits(message)
        self.by_sort[sort] = [rule for rule in self.rules if rule.match.may_hold(it)]
        return bool(self.by_sort[sort])


class FaultStage:
    """The stage of one network, which is set as its `LocalFabric.stage` while there are rules.

    A message passes the rules of its sender's link, then those of each receiver's. The oldest rule
    that takes it decides; older ones that only change a packet let it go on. What a port sends to
    itself does not leave the adapter and meets none.
    """

    def __init__(self, fabric: LocalFabric, later: Later, events: EventLog) -> None:
        self._fabric = fabric
        self._later = later
        self._events = events
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
            link.forget()
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
            passed, copies = self._pass(link, Kept(message, source, others, OUT), sort)
            if passed is not others:
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
            if link is None:
                arriving.append(target)
                continue
            passed, more = self._pass(link, Kept(message, source, [target], IN), sort)
            arriving += passed
            copies += more
        return arriving, copies

    def _pass(self, link: LinkFaults, found: Kept, sort: int) -> tuple[Sequence[FabricPort], int]:
        """Return the ports that get a message now by the rules of a link, and the copies made."""
        message, it, place = found.message, Traits(found.message), None
        if any(rule.match.passage is not None for rule in link.rules):
            place = link.traffic.place(it.packet, found.direction)
        for rule in link.by_sort[sort]:
            if not rule.takes(it, found.direction, place):
                continue
            if rule.change is None:
                return self._act(link, rule, found)
            change(message, rule.change)
            self._note(link, rule, found, ACTIONS[rule.action].verb)
            it = Traits(message)
        return found.targets, 0

    def _act(self, link: LinkFaults, rule: Rule, found: Kept) -> tuple[Sequence[FabricPort], int]:
        """Carry out a rule; returns the ports that get the message now, and the copies made."""
        action = ACTIONS[rule.action]
        passes = action.passes
        if action.keeps and (rule.seconds or not passes):
            self._keep(link, rule, found, action.verb)
            return list(found.targets) * passes, 1
        self._note(link, rule, found, action.verb)
        if rule.action == "flip":
            flip(found.message, hidden=True)
        elif rule.action == "corrupt":
            if Traits(found.message).packet is None:
                return [], 0  # what no check sum of ours covers: its receiver would drop it
            flip(found.message, hidden=False)
        return list(found.targets) * (passes + action.keeps), passes

    def _keep(self, link: LinkFaults, rule: Rule, found: Kept, verb: str) -> None:
        """Keep a copy of a message, for a time or until it is released."""
        size = size_of(found.message)
        if link.messages >= MOST_KEPT or link.bytes + size > MOST_KEPT_BYTES:
            rule.lost += 1
            self._note(link, rule, found, "has no room for")
            return
        self._note(link, rule, found, verb)
        link.messages += 1
        link.bytes += size
        self._serial += 1
        waits = rule.first_kept(found.direction) is not None
        copy = own(found.message)
        rule.kept[self._serial] = Kept(copy, found.source, found.targets, found.direction, size)
        if rule.bits_per_second:
            if not waits:
                self._transmit(link, rule, self._serial)
        elif rule.action != "hold":
            self._deliver_after(rule.seconds, link, rule, self._serial)

    def _transmit(self, link: LinkFaults, rule: Rule, serial: int) -> None:
        """Deliver a message of a `rate` after the time that it takes; the next one follows."""
        bits = 8 * Traits(rule.kept[serial].message).length
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
        self._note(link, rule, kept, "delivers")
        targets = kept.targets
        if kept.direction == OUT:
            targets, _ = self._into(kept.source, targets, kept.message, sort_of(kept.message))
        following = rule.first_kept(kept.direction) if rule.bits_per_second else None
        if following is not None:
            self._transmit(link, rule, following)
        self._fabric.deliver_late(targets, kept.message)

    def _note(self, link: LinkFaults, rule: Rule, found: Kept, verb: str) -> None:
        """Log that a rule of a link does what `verb` says to a message."""
        events = self._events
        if not events.active:
            return
        fault, name = rule.of_fault
        events.work, before = found.message.work, events.work
        try:
            events.tell(
                events.device(link.device), Fact.RULE, fault=fault, name=name, rule=rule.number,
                action=rule.action, verb=verb, direction=found.direction,
                **Traits(found.message).values(),
            )  # fmt: skip
        finally:
            events.work = before


class FaultRules:
    """The fault rules of all links by their numbers; a link is named like `a/1`, by HCA and port.

    `later` calls an action after so many seconds; `events` gets what the rules do. Methods raise
    `ValueError` for a number that no rule has.
    """

    def __init__(self, later: Later, events: EventLog) -> None:
        self._later = later
        self._events = events
        self._stages: dict[LocalFabric, FaultStage] = {}
        self._links: dict[str, tuple[LinkFaults, FaultStage]] = {}
        self._rules: dict[int, tuple[str, Rule]] = {}
        self._number = 0
        self._taken = 0  # by rules that ended
        self._passed = Passed()

    def add_link(self, name: str, device: str, port: FabricPort, fabric: LocalFabric) -> None:
        """Let `port` of `fabric` have rules, logged as what happens to `device`."""
        stage = self._stages.get(fabric)
        if stage is None:
            stage = self._stages[fabric] = FaultStage(fabric, self._later, self._events)
        self._links[name] = LinkFaults(port, device, self._passed), stage

    def add(self, name: str, rule: Rule) -> int:
        """Put a rule into force; returns its number. `ValueError`: no such link, too many rules."""
        if name not in self._links:
            raise ValueError(f"there is no link {name!r}, but {', '.join(self._links)}")
        if len(self._rules) >= MOST_RULES:
            raise ValueError(
                f"there are {MOST_RULES} rules already: `bluebridge link GUEST rules` lists them"
            )
        link, stage = self._links[name]
        self._number += 1
        rule.number = self._number
        self._rules[rule.number] = name, rule
        stage.add(link, rule)
        return rule.number

    def release(self, number: int) -> None:
        """Deliver the messages that a rule keeps; the rule stays."""
        link, stage, rule = self._find(number)
        stage.release(link, rule)

    def remove(self, number: int) -> None:
        """End a rule and deliver the messages that it keeps."""
        link, stage, rule = self._find(number)
        del self._rules[number]
        self._taken += rule.taken
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

    @property
    def taken(self) -> int:
        """The number of messages that rules have taken, those included that ended."""
        return self._taken + sum(rule.taken for _, rule in self._rules.values())

    def table(self) -> list[tuple[str, Rule]]:
        """Return the rules in the order they came, each with the name of its link."""
        return list(self._rules.values())

    def _find(self, number: int) -> tuple[LinkFaults, FaultStage, Rule]:
        if number not in self._rules:
            raise ValueError(f"there is no rule {number}: `bluebridge link GUEST rules` lists them")
        name, rule = self._rules[number]
        return *self._links[name], rule
