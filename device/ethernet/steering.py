"""The steering of Ethernet frames: which queue pairs get a frame.

There are three ways, as `Settings` say. One queue pair has the port's addresses, another one all
groups (A0 steering of `mlx4/main.c`); or groups name queue pairs per address, unicast ones too, and
others want everything (B0: `mlx4/mcg.c`, `en_netdev.c: mlx4_en_uc_steer_add`); or the first rule by
priority that matches a frame names them (`mlx4_flow_attach`).
"""

from __future__ import annotations

from collections.abc import Sequence

from bluebridge.device.frames.frame import number_of
from bluebridge.device.frames.rules import Entry, RuleMode
from bluebridge.device.rdma.ports.face import Groups
from bluebridge.device.rdma.ports.port import Port
from bluebridge.device.rdma.settings import Settings


def targets(port: Port, frame: bytes, groups: Groups, settings: Settings) -> Sequence[int]:
    """Return the numbers of the queue pairs that get a copy of `frame` by A0 or B0, if any."""
    if settings.unicast_steering:
        return _targets_b0(port, frame, groups)
    steering = port.tables.steering
    if steering.promiscuous is not None:
        return (steering.promiscuous,)
    if not port.admits(frame):
        return ()
    if frame[0] & 1:
        qpn = steering.multicast
    else:
        qpn = steering.unicast if frame[:6] in port.mac_addresses else None
    return () if qpn is None else (qpn,)


def _targets_b0(port: Port, frame: bytes, groups: Groups) -> Sequence[int]:
    address = frame[:6]
    everything = groups.frame_default(port.number, address)
    if not everything and not port.admits(frame):
        return ()
    members = groups.frame_members(port.number, address)
    return [qpn for qpn, _ in members] if members else everything


def targets_by_rules(port: Port, frame: bytes, sender: int = -1) -> Sequence[int]:
    """Return the numbers of the queue pairs that get a copy of `frame` by the rules of its port.

    `sender` is the port's own queue pair that sent the frame, -1 for frames from elsewhere.

    The VLAN filter holds where neither the rule names a tag nor a queue pair wants all frames.
    """
    rules = port.rules
    entry = rule_for(port, frame)
    if entry is None:
        members = rules.default(frame[0])
    elif entry.names_tag or port.admits_tag(frame) or rules.of_mode(RuleMode.ALL_DEFAULT):
        members = entry.targets
    else:
        members = []
    if rules.sniffers:
        members = members + rules.copies(frame[0])
    if len(members) == 1:  # mostly
        qpn, refuses_own = members[0]
        return () if refuses_own and qpn == sender else (qpn,)
    return list(dict.fromkeys(qpn for qpn, own in members if not (own and qpn == sender)))


def rule_for(port: Port, frame: bytes) -> Entry | None:
    """Return the entry of a port's rules that match a frame; None without one."""
    rules = port.rules
    return rules.find(number_of(frame, rules.depth))
