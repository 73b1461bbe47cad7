"""Ethernet frames in: steering, receive side scaling, checksum verdicts, the rings.

Linux `en_rx.c: mlx4_en_process_rx_cq`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bluebridge.device.fabric.messages import Frames, Train
from bluebridge.device.layout.mlx4.contexts import RECEIVING
from bluebridge.device.layout.mlx4.cqe import FrameStatus
from bluebridge.device.layout.mlx4.steering import RuleMode
from bluebridge.device.layout.net.ethernet import (
    ETHERTYPE_MAC_CONTROL,
    ETHERTYPE_ROCE,
    HEADER_SIZE,
    VLAN_TAG_TYPES,
)
from bluebridge.device.mlx4.ethernet.frame import FrameHeaders
from bluebridge.device.mlx4.ethernet.receive_batch import Batch
from bluebridge.device.mlx4.ethernet.receive_scaling import Spreader
from bluebridge.device.mlx4.ethernet.steering import targets, targets_by_rules
from bluebridge.device.mlx4.ethernet.train_forms import TAG_SIZE, TrainForms
from bluebridge.device.mlx4.ethernet.verdicts import findings
from bluebridge.device.mlx4.pairs.queue_pair import QueuePair
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.port import Port
from bluebridge.device.mlx4.rings.completions import SERVICE_VLAN_PRESENT, VLAN_PRESENT
from bluebridge.device.mlx4.settings.parameters import Parameters

_TYPE_OFFSET: Final = 12
_ROCE: Final = ETHERTYPE_ROCE.to_bytes(2, "big")
_MAC_CONTROL: Final = ETHERTYPE_MAC_CONTROL.to_bytes(2, "big")
_TAG_BITS: Final = dict(zip(VLAN_TAG_TYPES, (VLAN_PRESENT, SERVICE_VLAN_PRESENT), strict=True))
_NO_TAG = (0, 0)
_ANY_IP: Final = int(FrameStatus.IPV4 | FrameStatus.IPV6)


class FrameReceiver:
    """Gives the frames of the fabric to the queue pairs of one HCA.

    `find` is the queue pair with a number, if there is one; `groups` and `parameters` say how
    frames are steered.
    """

    def __init__(
        self,
        find: Callable[[int], QueuePair | None],
        groups: MulticastGroups,
        parameters: Parameters,
    ) -> None:
        self._find = find
        self._groups = groups
        self._parameters = parameters
        self._spreaders: dict[int, Spreader] = {}

    def spread(self, qpn: int, spreader: Spreader) -> None:
        """An RSS queue pair: its frames go where `spreader` says."""
        self._spreaders[qpn] = spreader

    def forget(self, qpn: int) -> None:
        """A queue pair is gone."""
        self._spreaders.pop(qpn, None)

    def clear(self) -> None:
        """All queue pairs are gone."""
        self._spreaders.clear()

    def receive(self, port: Port, message: Frames) -> int:
        """Frames that came in by `port`: to the queue pairs that steering names, or dropped.

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
        """Numbers of the queue pairs that get a copy of a frame of `message`."""
        if not self._parameters.flow_steering:
            return targets(port, frame, self._groups, self._parameters)
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
        tag = _tag(first)
        strip = bool(tag[0]) and qp.strip_vlan
        frames = forms.frames(strip, qp.keep_fcs)
        if not strip and tag[0] != VLAN_PRESENT:  # a customer's tag is told of even where it stays
            tag = _NO_TAG
        status, verdict = findings(first, headers, train.good)
        if headers.network != (HEADER_SIZE + TAG_SIZE if tag[0] else HEADER_SIZE):
            status &= ~_ANY_IP  # more tags than software expects
        batch.add(frames, (tag, status, verdict, value))

    def _receiving(self, number: int) -> QueuePair | None:
        """The queue pair with that number if its state lets it receive."""
        qp = self._find(number)
        return qp if qp is not None and qp.state in RECEIVING else None


def _tag(frame: bytes) -> tuple[int, int]:
    """The bit and the value of the outermost VLAN tag; zeros without one."""
    bit = _TAG_BITS.get(frame[_TYPE_OFFSET:HEADER_SIZE], 0)
    return (bit, int.from_bytes(frame[HEADER_SIZE : HEADER_SIZE + 2], "big")) if bit else (0, 0)
