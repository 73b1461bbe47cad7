"""The operations of users on own resources: records that wait for the peer's answers."""

from __future__ import annotations

from bluebridge.guest.protocols.ntrdma.engine.actions import Operation
from bluebridge.guest.protocols.ntrdma.engine.queue_pair import Domain, QueuePair
from bluebridge.guest.protocols.ntrdma.engine.regions import Region
from bluebridge.guest.protocols.ntrdma.engine.send_request import SendRequest


class Undo(Operation):
    """The end of something at the peer, of which this side has nothing left."""

    def __init__(self) -> None:
        super().__init__(lenient=True)


class CreateDomain(Operation):
    """The making of a protection domain, which is forgotten if the peer refuses."""

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self.domain = domain


class Register(Operation):
    """A registration, which is ended again if the peer refuses."""

    def __init__(self, domain: Domain, region: Region) -> None:
        super().__init__()
        self.domain, self.region = domain, region


class LocalWork(Operation):
    """A REG_MR or, lenient, a LOCAL_INV of a queue pair, which completes with the answer."""

    def __init__(self, pair: QueuePair, request: SendRequest, lenient: bool) -> None:
        super().__init__(lenient)
        self.pair, self.request, self.epoch = pair, request, pair.epoch


class CreateTwin(Operation):
    """The making of a twin, the one after `epoch` others; the queue pair stays if refused."""

    def __init__(self, pair: QueuePair, lenient: bool = False) -> None:
        super().__init__(lenient)
        self.pair, self.epoch = pair, pair.epoch


class CreatePair(CreateTwin):
    """The making of a queue pair, which is removed again if the peer refuses its twin."""


class ResetPair(CreateTwin):
    """The deletion of a twin, whatever the peer says, and then the making of another."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(pair, lenient=True)
        self.deleted = False


class RemovePair(Operation):
    """The deletion of a twin, after which the queue pair is freed."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(lenient=True)
        self.pair = pair


class StopPair(Operation):
    """The way to the error state: what is posted is flushed once the peer has stopped."""

    def __init__(self, pair: QueuePair) -> None:
        super().__init__(lenient=True)
        self.pair, self.epoch = pair, pair.epoch
