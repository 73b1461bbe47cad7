"""MADs over the device's queue pair 1: RoCE datagrams between general service interfaces."""

from __future__ import annotations

import errno
import ipaddress
import select
import threading
import time
from dataclasses import replace
from functools import partial

from bluebridge.device.layout.ib.mad import MAD_SIZE
from bluebridge.device.layout.net.ip import IPV4, IPV4_MAPPED, ones_complement_sum
from bluebridge.device.layout.net.roce import GRH, GRH_SIZE, GSI_QKEY, GSI_QPN, ip_gid, ipv4_gid
from bluebridge.guest.cm.interface import LocalPort, Peer, Received, Resolver
from bluebridge.guest.cm.manager import ConnectionManager
from bluebridge.guest.cm.messages import HOP_LIMIT
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    QpAttr,
    QpInit,
    QpState,
    QpType,
    RecvWr,
    RoceAddress,
    SendFlags,
    SendWr,
    Sge,
    VerbsError,
    Wc,
    WcStatus,
)

RECEIVES = 64
SENDS = 32
SLOT = 512  # a datagram of 40 + 256 bytes each, aligned so that none straddles a page
RESOLVE_SECONDS = 0.5
SEND_FLAG = 1 << 32
"""The flag in the wr_id of sends; the low bits are the slot."""


class GsiTransport:
    """`MadTransport` over a GSI queue pair and a completion channel of its own.

    `receive` is for one thread; `send` may be called from any. Where completions do not tell the
    MAC address of a sender, as those of a ConnectX-5, `resolver` does (core/addr.c:
    rdma_addr_find_l2_eth_by_grh).
    """

    def __init__(self, device: Device, gid_index: int, resolver: Resolver) -> None:
        self._resolver = resolver
        self._health = device.health
        self._gid_index = gid_index
        self._lock = threading.Lock()
        self._pd = device.alloc_pd()
        self._mr = self._pd.get_dma_mr(AccessFlags.LOCAL_WRITE)
        self._memory = device.allocate((RECEIVES + SENDS) * SLOT)
        self._channel = device.create_comp_channel()
        self._cq = device.create_cq(2 * (RECEIVES + SENDS), self._channel)
        init = QpInit(QpType.GSI, self._cq, self._cq, SENDS, RECEIVES)
        self._qp = self._pd.create_qp(init)
        self._free = list(range(SENDS))
        self._receives = [
            RecvWr(slot, [Sge(self._address(slot), GRH_SIZE + MAD_SIZE, self._mr.lkey)])
            for slot in range(RECEIVES)
        ]
        self._qp.modify(QpAttr(state=QpState.INIT, qkey=GSI_QKEY))
        for receive in self._receives:
            self._qp.post_recv(receive)
        self._qp.modify(QpAttr(state=QpState.RTR))
        self._qp.modify(QpAttr(state=QpState.RTS, sq_psn=0))

    def fileno(self) -> int:
        """Return the completion channel's eventfd."""
        return self._channel.fileno()

    def receive(self) -> list[Received]:
        """Return all MADs that arrived, freeing the slots of sent ones; raises `DeviceLost`."""
        self._health.check()
        while self._channel.get_event(0) is not None:
            pass
        self._cq.req_notify()
        arrived: list[Received] = []
        patience = RESOLVE_SECONDS
        while completions := self._cq.poll(RECEIVES):
            for completion in completions:
                if completion.wr_id & SEND_FLAG:
                    with self._lock:
                        self._free.append(completion.wr_id & ~SEND_FLAG)
                elif completion.status is WcStatus.SUCCESS:
                    taken = self._take(completion, patience)
                    if taken is not None:
                        arrived.append(taken)
                    else:
                        patience = 0.0  # senders that nobody knows hold others up once
        return arrived

    def send(self, mad: bytes, peer: Peer) -> None:
        """Post one MAD to the peer's queue pair 1; `OSError` when it cannot be posted."""
        with self._lock:
            if not self._free:
                raise OSError(errno.EAGAIN, "all send slots of queue pair 1 are in use")
            slot = self._free.pop()
            start = (RECEIVES + slot) * SLOT
            self._memory.view[start : start + MAD_SIZE] = mad
            request = SendWr(
                SEND_FLAG | slot,
                sg_list=[Sge(self._memory.address + start, MAD_SIZE, self._mr.lkey)],
                send_flags=SendFlags.SIGNALED,
                address_vector=RoceAddress(
                    peer.gid, peer.mac, self._gid_index, traffic_class=peer.traffic_class
                ),
                remote_qpn=GSI_QPN,
                remote_qkey=GSI_QKEY,
            )
            try:
                self._qp.post_send(request)
            except VerbsError as error:
                self._free.append(slot)
                raise OSError(errno.EIO, str(error)) from error

    def flush(self, timeout: float) -> None:
        """Wait until every posted send completed; what arrives meanwhile is dropped."""
        deadline = time.monotonic() + timeout
        if self._health.lost:
            return  # nothing will leave any more
        self.receive()
        while len(self._free) < SENDS and (left := deadline - time.monotonic()) > 0:
            select.select([self._channel.fileno()], [], [], min(left, 0.05))
            self.receive()

    def close(self) -> None:
        """Destroy the queue pair and its completion queue, channel and memory."""
        self._qp.destroy()
        self._cq.destroy()
        self._channel.close()
        self._mr.close()
        self._memory.free()
        self._pd.close()

    def _address(self, slot: int) -> int:
        return self._memory.address + slot * SLOT

    def _take(self, completion: Wc, patience: float) -> Received | None:
        """Return the MAD of a completion; None if its sender has no MAC address any more."""
        slot = completion.wr_id
        start = slot * SLOT
        grh = bytes(self._memory.view[start : start + GRH_SIZE])
        mad = bytes(self._memory.view[start + GRH_SIZE : start + completion.byte_len])
        self._qp.post_recv(self._receives[slot])
        peer = _peer(grh, completion.smac)
        if peer.mac:
            return Received(mad, peer)
        try:
            mac = self._resolver.resolve(_ip_of(peer.gid), patience)
        except (OSError, ValueError):
            return None
        return Received(mad, replace(peer, mac=mac))


def _peer(header: bytes, mac: bytes) -> Peer:
    """Return the sender by the network header (40 bytes) in front of a datagram.

    It is a GRH, an IPv6 header, or an IPv4 header in the last 20 bytes, which is told by its
    checksum (core/verbs.c: ib_get_rdma_header_version).
    """
    ipv4 = header[GRH_SIZE - IPV4.size :]
    if IPV4.get(ipv4, "version") == 4 and ones_complement_sum(ipv4) == 0:
        return Peer(ipv4_gid(IPV4.get_raw(ipv4, "source")), mac, IPV4.get(ipv4, "tos"))
    return Peer(GRH.get_raw(header, "sgid"), mac, GRH.get(header, "traffic_class"))


def open_cm(device: Device, ip: str, resolver: Resolver) -> ConnectionManager:
    """Take queue pair 1 of `device` and manage connections of the IP address `ip`.

    Adds the address's GID to the port when it is not there yet. Raises `VerbsError`.
    """
    port = roce_port(device, ip)
    transport = GsiTransport(device, port.gid_index, resolver)
    return ConnectionManager(port, transport, resolver, partial(roce_address, port.gid_index))


def roce_address(gid_index: int, peer: Peer) -> RoceAddress:
    """Return the way from the GID at `gid_index` to a peer on Ethernet."""
    return RoceAddress(
        peer.gid, peer.mac, gid_index, traffic_class=peer.traffic_class, hop_limit=HOP_LIMIT
    )


def roce_port(device: Device, ip: str) -> LocalPort:
    """Return the port of `device` with the address `ip` and its GID, which is added if need be."""
    port = device.ethernet_port
    if port is None:
        raise VerbsError(f"{device.name} has no Ethernet port")
    gid = ip_gid(ipaddress.ip_address(ip).packed)
    return LocalPort(ip, port.mac, gid, port.add_gid(gid), device.query_device().node_guid)


def _ip_of(gid: bytes) -> str:
    """Return the IP address of a GID."""
    mapped = gid.startswith(IPV4_MAPPED)
    return str(ipaddress.ip_address(gid[len(IPV4_MAPPED) :] if mapped else gid))
