"""The receiving of Ethernet frames: steering, receive side scaling, checksum verdicts, rings.

Linux `en_rx.c: mlx4_en_process_rx_cq`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bluebridge.device.ethernet.frames.frame import FrameHeaders
from bluebridge.device.ethernet.frames.receive_scaling import Spreader
from bluebridge.device.ethernet.frames.train_forms import TAG_SIZE, TrainForms
from bluebridge.device.ethernet.frames.verdicts import IS_IPV4, IS_IPV6, findings
from bluebridge.device.ethernet.receive_batch import Batch
from bluebridge.device.ethernet.rules.rule import RuleMode
from bluebridge.device.ethernet.steering import targets, targets_by_rules
from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_MAC_CONTROL,
    ETHERTYPE_ROCE,
    HEADER_SIZE,
    VLAN_TAG_TYPES,
)
from bluebridge.device.rdma.pairs.completions import CUSTOMER_TAG, NO_TAG, SERVICE_TAG
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.groups import Groups
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.settings import Settings
from bluebridge.device.rdma.vocabulary import RECEIVING

_TYPE_OFFSET: Final = 12
_ROCE: Final = ETHERTYPE_ROCE.to_bytes(2, "big")
_MAC_CONTROL: Final = ETHERTYPE_MAC_CONTROL.to_bytes(2, "big")
_TAG_KINDS: Final = dict(zip(VLAN_TAG_TYPES, (CUSTOMER_TAG, SERVICE_TAG), strict=True))
_ANY_IP: Final = IS_IPV4 | IS_IPV6


class FrameReceiver:
    """Gives the frames of the fabric to the queue pairs of one HCA.

    `find` is the queue pair with a number, if there is one; `groups` and `settings` say how
    frames are steered.
    """

    def __init__(
        self, find: Callable[[int], QueuePair | None], groups: Groups, settings: Settings
    ) -> None:
        self._find = find
        self._groups = groups
        self._settings = settings
        self._spreaders: dict[int, Spreader] = {}

    def spread(self, qpn: int, spreader: Spreader) -> None:
        """Let `spreader` distribute the frames for an RSS queue pair."""
        self._spreaders[qpn] = spreader

    def forget(self, qpn: int) -> None:
        """Forget the spreader of a queue pair that is gone, if it had one."""
        self._spreaders.pop(qpn, None)

    def clear(self) -> None:
        """Forget the spreaders of all queue pairs."""
        self._spreaders.clear()

    def receive(self, port: Port, message: Frames) -> int:
        """Deliver frames that came in by `port` to the queue pairs that steering names.

        Returns in how many receive rings they were wanted, each frame counted once per ring.
        """
        copies = 0
        batches: dict[int, Batch] = {}
        for train in message.trains:
            first = train.frames[0]
            kind = first[_TYPE_OFFSET:HEADER_SIZE]
            if len(first) < HEADER_SIZE or kind == _ROCE:
                continue
            if kind == _MAC_CONTROL and not message.mirrored:
                port.flow.receive(first)
                continue
            numbers = self._targets(port, first, message)
            copies += len(numbers) * len(train.frames)
            if not message.mirrored:
                port.counters.receive(train.frames, wanted=bool(numbers))
            forms = TrainForms(train.frames)
            for number in numbers:
                self._assign(port, train, forms, number, batches)
        for batch in batches.values():
            port.flow.accept(batch)
        return copies

    def _targets(self, port: Port, frame: bytes, message: Frames) -> Sequence[int]:
        """Return the numbers of the queue pairs that get a copy of a frame of `message`."""
        if not self._settings.flow_steering:
            return targets(port, frame, self._groups, self._settings)
        if message.mirrored:
            return [qpn for qpn, _ in port.rules.of_mode(RuleMode.MIRROR_SENT)]
        return targets_by_rules(port, frame, message.own_qpn)

    def _assign(
        self, port: Port, train: Train, forms: TrainForms, number: int, batches: dict[int, Batch]
    ) -> None:
        """Put a train into the batch of its ring."""
        first = train.frames[0]
        headers, value = FrameHeaders(first), 0
        qp = self._receiving(number)
        spreader = self._spreaders.get(number)
        if qp is not None and spreader is not None:
            value, number = spreader.choose(first, headers)
            qp = self._receiving(number)
        if qp is None:
            port.counters.rx.dropped += len(train.frames)
            return
        batch = batches.get(number)
        if batch is None:
            batch = batches[number] = Batch(qp)
        kind, tag = _tag(first)
        strip = kind != NO_TAG and qp.strip_vlan
        frames = forms.frames(strip, qp.keep_fcs)
        if not strip and kind != CUSTOMER_TAG:  # a customer's tag is told of even where it stays
            kind, tag = NO_TAG, 0
        found, checksum = findings(first, headers, train.good)
        if headers.network != (HEADER_SIZE if kind == NO_TAG else HEADER_SIZE + TAG_SIZE):
            found &= ~_ANY_IP  # more tags than software expects
        batch.add(frames, (kind, tag, found, checksum, value))

    def _receiving(self, number: int) -> QueuePair | None:
        """Return the queue pair with that number if its state lets it receive, else None."""
        qp = self._find(number)
        return qp if qp is not None and qp.state in RECEIVING else None


def _tag(frame: bytes) -> tuple[int, int]:
    """Return kind and value of the outermost VLAN tag."""
    kind = _TAG_KINDS.get(frame[_TYPE_OFFSET:HEADER_SIZE], NO_TAG)
    if kind == NO_TAG:
        return NO_TAG, 0
    return kind, int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 2], "big")
