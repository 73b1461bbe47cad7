"""Who hears of changes of a subnet: a manager in the switch, or by traps one in a guest.

The manager in the switch assigns LIDs, sets tables and brings links into service. It sets ports
through their agents, as firmware-managed switches do for their own ports; guests see what they
would see of any manager: PortInfo that changes, and the events their adapter makes of it (Linux
`ib/mad.c: handle_port_mgmt_change_event`). A trap is sent again until the manager represses it
(InfiniBand vol. 1, 13.4.9 and 14.3.1).
"""

from __future__ import annotations

import logging
from typing import Final

from bluebridge.device.fabric.addresses import lid_bytes
from bluebridge.device.fabric.interface import Later
from bluebridge.device.fabric.messages import Datagram
from bluebridge.device.fabric.subnet.administrator import Administrator
from bluebridge.device.fabric.subnet.fabric import InfinibandFabric
from bluebridge.device.fabric.subnet.packets import trap
from bluebridge.device.fabric.subnet.port import DEFAULT_PREFIX, DEFAULT_TIMEOUT, Change, PortAgent
from bluebridge.device.layout.ib.link import LINK_ACTIVE, LINK_ARMED, LINK_DOWN, LINK_INIT
from bluebridge.device.layout.ib.mad import (
    NOTICE_128_LID,
    NOTICE_URGENT,
    PORT_INFO,
    SM_INFO,
    SM_MASTER,
    SWITCH_INFO,
    TRAP_LINK_STATE,
    PortCapability,
)
from bluebridge.device.throttle import Throttle

log: Final = logging.getLogger(__name__)

SM_LID = 1
PRIORITY = 14
SWEEP_SECONDS = 0.3
"""Seconds from a link that comes up to its service.

Drivers lose events in the first moments: they start the port before they listen (Linux
`ib/main.c: mlx4_ib_probe`).
"""
CONFIRM_SECONDS = 2.0
"""Seconds after which a port is set again, as its driver may have missed the first events."""

_OURS = Change.LID | Change.SM_LID | Change.GID_PREFIX | Change.ROUTES
"""Changes by others that the manager undoes."""

REPEAT_SECONDS = 1.0
ATTEMPTS = 5
PRODUCER_SWITCH = 2


class SubnetManager:
    """The master of the subnet: port n of the switch leads to LID n + 1, whatever is there."""

    def __init__(self, fabric: InfinibandFabric, later: Later) -> None:
        self._fabric = fabric
        self._later = later
        self._activity = 0
        self._failures = Throttle()
        self._sweeping = False  # a sweep is due
        self._setting = False  # changes are made by this manager at present
        self._unconfirmed: dict[int, PortAgent] = {}
        self._askers: set[int] = set()  # of these: those that have asked the administrator
        self.administrator = Administrator(fabric)
        fabric.switch.manager = self
        fabric.watchers.append(self)
        self._setting = True
        self._serve_switch()
        self._setting = False

    # -- Manager ------------------------------------------------------------------------------

    def sm_info(self) -> bytes:
        """Return the manager's SMInfo."""
        self._activity += 1
        return bytes(SM_INFO.pack(
            guid=self._fabric.switch.agent.guid, activity=self._activity & 0xFFFFFFFF,
            priority=PRIORITY, state=SM_MASTER,
        ))  # fmt: skip

    def administer(self, request: Datagram) -> None:
        """Take a MAD for the subnet administrator."""
        asker = self._fabric.topology.by_lid(request.route.smac)
        if id(asker) in self._unconfirmed:
            self._askers.add(id(asker))
        self.administrator.receive(request)

    # -- Watcher ------------------------------------------------------------------------------

    def changed(self, agent: PortAgent, change: Change) -> None:
        """Sweep soon after a link came up or another manager set what this one manages.

        A link that went down takes its port out of every group.
        """
        came = change & Change.STATE and agent.state == LINK_INIT
        if (came or change & _OURS) and not (self._sweeping or self._setting):
            self._sweeping = True
            self._later(SWEEP_SECONDS, self._sweep)
        if change & Change.STATE and agent.state == LINK_DOWN:
            # The port of the switch stands for its peer: one that was reset reports no change.
            end = agent if agent.end_port else agent.peer
            if end is not None:
                self.left(end)

    def left(self, agent: PortAgent) -> None:
        """Remove a port that is out of service from all groups."""
        self.administrator.forget(agent)
        self._unconfirmed.pop(id(agent), None)
        self._askers.discard(id(agent))

    # -- sweeping -----------------------------------------------------------------------------

    def _serve_switch(self) -> None:
        node = self._fabric.switch.node
        own = node.ports[0]
        own.set_capabilities(int(PortCapability.IS_SM | PortCapability.SYSTEM_GUID))
        self._serve(own, SM_LID)
        node.forwarding.clear()
        node.forwarding.update({SM_LID + number: number for number in node.ports})
        SWITCH_INFO.set(node.switch_info, "linear_top", max(node.forwarding))
        SWITCH_INFO.set(node.switch_info, "port_state_change", 0)
        own.tell(Change.ROUTES)

    def _sweep(self) -> None:
        """Serve every port; one that fails is left as it is until it changes."""
        self._setting = True
        try:
            self._serve_switch()
            for port, end in self._fabric.topology.links():
                try:
                    self._serve(port, 0)
                    if self._serve(end, SM_LID + port.number):
                        self._unconfirmed[id(end)] = end
                except Exception:
                    self._note_failure(port.number)
        finally:
            self._setting = self._sweeping = False
            self._later(CONFIRM_SECONDS, self._confirm)

    def _note_failure(self, port: int) -> None:
        """Log the failure to serve one port of the switch, which does not affect others."""
        if self._failures.admits():
            log.exception("port %d of the switch (%d so far)", port, self._failures.count)

    def _serve(self, agent: PortAgent, lid: int) -> bool:
        """Set addresses, then ARMED, then ACTIVE; returns False if there was nothing to do."""
        if agent.state == LINK_ACTIVE and agent.lid == lid:
            return False
        agent.set_info(_port_info(agent, lid, LINK_ARMED if agent.state == LINK_INIT else 0))
        if agent.state == LINK_ARMED:
            info = bytearray(_port_info(agent, lid, LINK_ACTIVE))
            PORT_INFO.set(info, "client_reregister", 0)
            agent.set_info(bytes(info))
        return True

    def _confirm(self) -> None:
        """Make drivers read their ports again.

        Registering again costs IPoIB its groups for a moment, and packets with them. A port that
        has sent a request to the administrator since need not: only its caches may be old (Linux
        `core/cache.c: ib_cache_event_task`), and the event of the P_Key table renews these.
        """
        waiting, self._unconfirmed = self._unconfirmed, {}
        askers, self._askers = self._askers, set()
        for key, end in waiting.items():
            if end.state != LINK_ACTIVE:
                continue
            try:
                if key in askers:
                    end.tell(Change.PKEYS)  # as after a Set that changed nothing
                else:
                    end.set_info(_port_info(end, end.lid, 0))
            except Exception:
                self._note_failure(end.lid - SM_LID)


def _link_mtu(agent: PortAgent) -> int:
    """Return the MTU code that both ends of the cable support (14.2.5.6: NeighborMTU).

    Software limits its own: iPXE `hermon.c: hermon_ib_open` to 2048 bytes.
    """
    ends = (agent,) if agent.peer is None else (agent, agent.peer)
    return min(end.get("mtu_cap") for end in ends)


def _port_info(agent: PortAgent, lid: int, state: int) -> bytes:
    info = bytearray(agent.info)
    for name, value in {
        "gid_prefix": DEFAULT_PREFIX, "lid": lid, "lmc": 0, "sm_lid": SM_LID, "sm_sl": 0,
        "neighbour_mtu": _link_mtu(agent), "subnet_timeout": DEFAULT_TIMEOUT,
        "client_reregister": 1, "state": state, "physical_state": 0,
    }.items():  # fmt: skip
        PORT_INFO.set(info, name, value)
    return bytes(info)


class TrapSender:
    """The sender of trap 128 for the switch's ports, to the subnet manager that port 0 knows."""

    def __init__(self, fabric: InfinibandFabric, later: Later) -> None:
        self._fabric = fabric
        self._later = later
        self._tid = 0
        self._left = 0
        fabric.switch.repressed = self.repressed
        fabric.watchers.append(self)

    def changed(self, agent: PortAgent, change: Change) -> None:
        """Send a trap when a link came up or went down, not when a manager set its state."""
        own = agent.number and self._fabric.switch.node.ports.get(agent.number) is agent
        if own and change & Change.STATE and agent.state in (LINK_DOWN, LINK_INIT):
            self._tid += 1
            self._left = ATTEMPTS
            self._send(self._tid)

    def left(self, agent: PortAgent) -> None:
        """Do nothing for a port that was detached: its link state has already caused a trap."""

    def repressed(self) -> None:
        """Stop repeating a trap that the manager has repressed."""
        self._left = 0

    def _send(self, tid: int) -> None:
        own = self._fabric.switch.agent
        manager = own.get("sm_lid")
        if tid != self._tid or not self._left or not manager:
            return  # a newer trap has replaced it, it was repressed, or there is no manager
        self._left -= 1
        where = {NOTICE_128_LID: lid_bytes(own.lid)}
        what = {"type": NOTICE_URGENT, "producer": PRODUCER_SWITCH, "trap": TRAP_LINK_STATE}
        self._fabric.switch.send(trap(own.lid, manager, tid, where, **what))
        self._later(REPEAT_SECONDS, lambda: self._send(tid))
