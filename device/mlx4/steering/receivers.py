"""The decisions on what a ConnectX-3 receives, in one of three ways.

One queue pair has the port's addresses, another one all groups (A0 steering of `mlx4/main.c`); or
groups name queue pairs per address, unicast ones too, and others want everything (B0:
`mlx4/mcg.c`, `en_netdev.c: mlx4_en_uc_steer_add`); or the first rule by priority that matches a
packet names them (`mlx4_flow_attach`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bluebridge.device.fabric.messages import Datagram, Frames, Train
from bluebridge.device.frames import rules
from bluebridge.device.frames.frame import FrameHeaders, number_of, transport_number
from bluebridge.device.frames.receiving import Spreader
from bluebridge.device.frames.rules import Entry, Member, RuleMode
from bluebridge.device.layout.net.ip import IPOIB_HEADER_SIZE
from bluebridge.device.mlx4.ports.multicast_groups import MulticastGroups
from bluebridge.device.mlx4.ports.port_tables import PortTables
from bluebridge.device.mlx4.settings.parameters import Parameters
from bluebridge.device.rdma.pairs.queue_pair import QueuePair
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.ports.steering import Delivery, Steering
from bluebridge.device.rdma.vocabulary import RECEIVING
from bluebridge.device.rdma.work import FrameWork

_NOBODY: Final[Sequence[Member]] = ()


def number_of_datagram(message: Datagram) -> int:
    """Return a datagram's destination GID, queue pair, IPoIB addresses and ports as one number."""
    payload = message.payload
    headers = FrameHeaders(payload, IPOIB_HEADER_SIZE)
    return (
        rules.INFINIBAND
        | int.from_bytes(message.route.dgid, "big") << rules.DGID
        | message.target_qpn << rules.QPN
        | transport_number(payload, headers)
    )


class CardSteering(Steering):
    """The steering of one HCA as INIT_HCA chose it, by `tables` for each port from 1 on.

    `find` returns the queue pair with a number, None without one.
    """

    find: Callable[[int], QueuePair | None]

    def __init__(
        self, parameters: Parameters, groups: MulticastGroups, tables: Sequence[PortTables]
    ) -> None:
        self._parameters = parameters
        self._groups = groups
        self._tables = tables
        self._spreaders: dict[int, Spreader] = {}

    def spread(self, qpn: int, spreader: Spreader) -> None:
        """Let `spreader` distribute the frames for an RSS queue pair."""
        self._spreaders[qpn] = spreader

    def forget(self, qpn: int) -> None:
        self._spreaders.pop(qpn, None)

    def reset(self) -> None:
        """Forget the spreaders of all queue pairs."""
        self._spreaders.clear()

    # -- frames ---------------------------------------------------------------------------------

    def frame(
        self, port: Port, train: Train, headers: FrameHeaders, message: Frames
    ) -> Sequence[Delivery]:
        frame, tables = train.frames[0], self._tables[port.number - 1]
        if not self._parameters.flow_steering:
            numbers = self._by_address(port, tables, frame)
        elif message.mirrored:
            numbers = [qpn for qpn, _ in tables.rules.of_mode(RuleMode.MIRROR_SENT)]
        else:
            numbers = _by_rules(tables, frame, message.own_qpn)
        if not self._spreaders:
            return [Delivery(number) for number in numbers]
        return [self._delivery(number, frame, headers) for number in numbers]

    def _delivery(self, number: int, frame: bytes, headers: FrameHeaders) -> Delivery:
        """Return the ring of a queue pair, which an RSS one chooses while it may receive."""
        spreader = self._spreaders.get(number)
        if spreader is not None:
            qp = self.find(number)
            if qp is not None and qp.state in RECEIVING:
                value, ring = spreader.choose(frame, headers)
                return Delivery(ring, value)
        return Delivery(number)

    def _by_address(self, port: Port, tables: PortTables, frame: bytes) -> Sequence[int]:
        """Return the numbers of the queue pairs that get a copy of `frame` by A0 or B0, if any."""
        if self._parameters.unicast_steering:
            return self._by_groups(port, tables, frame)
        receivers = tables.receivers
        if receivers.promiscuous is not None:
            return (receivers.promiscuous,)
        if not tables.admits(frame):
            return ()
        if frame[0] & 1:
            qpn = receivers.multicast
        else:
            qpn = receivers.unicast if frame[:6] in port.mac_addresses else None
        return () if qpn is None else (qpn,)

    def _by_groups(self, port: Port, tables: PortTables, frame: bytes) -> Sequence[int]:
        address = frame[:6]
        everything = self._groups.frame_default(port.number, address)
        if not everything and not tables.admits(frame):
            return ()
        members = self._groups.frame_members(port.number, address)
        return [qpn for qpn, _ in members] if members else everything

    def returns(self, port: Port, work: FrameWork, frame: bytes) -> tuple[bool, bool]:
        """Return whether a frame goes back to its port only, and whether there and to the wire.

        Only what is said to come back does, and what has its destination repeated by its
        entry if the port itself has that or a rule for the frame: for loopback tests Linux
        does so (`en_tx.c`: MLX4_EN_FLAG_ENABLE_HW_LOOPBACK), user space always does (rdma-core
        `providers/mlx4/qp.c: mlx4_post_send`). A rule that does not name the whole address says
        nothing of who else has it.
        """
        if work.loopback:
            return True, False
        address = work.repeated
        if not address:
            return False, False
        group = bool(frame[0] & 1)
        if address in port.mac_addresses:
            return not group, group
        entry = _rule_for(self._tables[port.number - 1], frame)
        if entry is None:
            return False, False
        alone = entry.names_address and not group
        return alone, not alone

    def miss(self, qpn: int, frames: int) -> None:
        """Do nothing: only ports count them."""

    # -- datagrams ------------------------------------------------------------------------------

    def group(self, port: Port, message: Datagram) -> Sequence[Member]:
        if self._parameters.flow_steering:
            return self._steered(port, message)
        return self._groups.members(message.route.dgid)

    def datagram(self, port: Port, message: Datagram) -> Sequence[Member] | None:
        parameters = self._parameters
        if parameters.flow_steering and message.target_qpn in parameters.datagram_range:
            return self._steered(port, message)
        return None

    def _steered(self, port: Port, message: Datagram) -> Sequence[Member]:
        """Return the queue pairs that the rules of a port give a datagram to; empty for none."""
        found = self._tables[port.number - 1].rules.find_datagram(number_of_datagram(message))
        return _NOBODY if found is None else found.targets


def _by_rules(tables: PortTables, frame: bytes, sender: int) -> Sequence[int]:
    """Return the numbers of the queue pairs that get a copy of `frame` by the rules of its port.

    `sender` is the port's own queue pair that sent the frame, -1 for frames from elsewhere.

    The VLAN filter holds where neither the rule names a tag nor a queue pair wants all frames.
    """
    rules = tables.rules
    entry = _rule_for(tables, frame)
    if entry is None:
        members = rules.default(frame[0])
    elif entry.names_tag or tables.admits_tag(frame) or rules.of_mode(RuleMode.ALL_DEFAULT):
        members = entry.targets
    else:
        members = []
    if rules.sniffers:
        members = members + rules.copies(frame[0])
    if len(members) == 1:  # mostly
        qpn, refuses_own = members[0]
        return () if refuses_own and qpn == sender else (qpn,)
    return list(dict.fromkeys(qpn for qpn, own in members if not (own and qpn == sender)))


def _rule_for(tables: PortTables, frame: bytes) -> Entry | None:
    """Return the entry of a port's rules that match a frame; None without one."""
    rules = tables.rules
    return rules.find(number_of(frame, rules.depth))
