"""An Ethernet interface with one IP address, which answers and asks for MAC addresses.

    with NetInterface(device, "192.168.69.127") as net:
        mac = net.resolve("192.168.69.128")         # 6 bytes, or TimeoutError

It owns an Ethernet queue pair of the driver. A thread of its own waits on that queue pair's
completion channel, answers requests and wakes the threads in `resolve`; the same thread gives
receive buffers back. The GID of the address is added to the port. An IPv4 address is found by ARP,
an IPv6 address by neighbour discovery.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import threading

from bluebridge.device.layout.net.roce import ip_gid
from bluebridge.guest.neighbours import neighbours_of
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    DeviceLost,
    QpInit,
    QpType,
    RecvWr,
    SendWr,
    Sge,
    VerbsError,
    Wc,
    WcStatus,
)

RECEIVES = 64
SENDS = 16
SLOT = 2048
RETRY_SECONDS = 0.5
DEFAULT_TIMEOUT = 5.0
_SEND = 1 << 16  # in the wr_id of sends; the low bits are the slot
_NO_MAC = bytes(6)


class NetInterface:
    """Address `ip` with `prefix` bits of network on the port of `device`.

    Raises `VerbsError` for a device that is not on Ethernet.
    """

    def __init__(self, device: Device, ip: str, prefix: int = 24) -> None:
        port = device.ethernet_port
        if port is None:
            raise VerbsError(f"{device.name} has no Ethernet port")
        self._health = device.health
        self.network = ipaddress.ip_interface(f"{ip}/{prefix}")
        self.mac = port.mac
        self.gid_index = port.add_gid(ip_gid(self.network.ip.packed))
        self._protocol = neighbours_of(self.network.ip.packed, self.mac)
        self._neighbours: dict[bytes, bytes] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._send_lock = threading.Lock()
        self._free = list(range(SENDS))
        self._memory = device.allocate((RECEIVES + SENDS) * SLOT)
        self._pd = device.alloc_pd()
        self._mr = self._pd.get_dma_mr(AccessFlags.LOCAL_WRITE)
        self._channel = device.create_comp_channel()
        self._cq = device.create_cq(RECEIVES + SENDS, self._channel)
        self._qp = self._pd.create_qp(
            QpInit(QpType.RAW_ETH, self._cq, self._cq, SENDS, RECEIVES, max_send_sge=1)
        )
        self._qp.modify_init()
        self._qp.post_recv([self._receive_request(slot) for slot in range(RECEIVES)])
        self._qp.modify_rtr()
        self._qp.modify_rts()
        port.steer_frames(self._qp.qpn, self._protocol.groups)
        self._thread = threading.Thread(target=self._run, name="netif", daemon=True)
        self._thread.start()
        self._send(self._protocol.announcement())

    def resolve(self, ip: str, timeout: float = DEFAULT_TIMEOUT) -> bytes:
        """Return the MAC address (6 bytes) behind `ip`; asks every half second.

        Raises `TimeoutError` without an answer in time, `ValueError` for an address that is no
        neighbour, `DeviceLost`.
        """
        address = ipaddress.ip_address(ip)
        if address not in self.network.network:
            raise ValueError(f"{ip} is not in {self.network.network}: there is no router here")
        if address == self.network.ip:
            return self.mac
        # Questions are counted: a guest that stood still has not waited for an answer.
        questions = math.ceil(timeout / RETRY_SECONDS)
        target = address.packed
        with self._changed:
            while target not in self._neighbours:
                self._health.check()
                if questions == 0:
                    raise TimeoutError(f"{ip} does not answer: nobody has this address")
                self._send(self._protocol.question(target))
                patience = min(RETRY_SECONDS, timeout)
                self._changed.wait_for(lambda: target in self._neighbours, patience)
                questions -= 1
            return self._neighbours[target]

    def forget(self, ip: str) -> None:
        """Drop the MAC address of `ip`, so that the next `resolve` asks again."""
        with self._changed:
            self._neighbours.pop(ipaddress.ip_address(ip).packed, None)

    def close(self) -> None:
        """Stop the thread and destroy the queue pair; a second call does nothing."""
        if self._closing:
            return
        self._closing = True
        self._channel.wake()
        self._thread.join()
        self._qp.destroy()
        self._cq.destroy()
        self._channel.close()
        self._mr.close()
        self._memory.free()
        self._pd.close()

    def __enter__(self) -> NetInterface:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _run(self) -> None:
        # A thread in `resolve` looks at the device itself, and raises.
        with contextlib.suppress(DeviceLost):
            while not self._closing:
                self._cq.req_notify()
                while completions := self._cq.poll(RECEIVES):
                    for completion in completions:
                        self._finish(completion)
                self._channel.get_event()

    def _finish(self, wc: Wc) -> None:
        if wc.wr_id & _SEND:
            with self._send_lock:
                self._free.append(wc.wr_id & (_SEND - 1))
        elif wc.status is WcStatus.SUCCESS:
            start = wc.wr_id * SLOT
            frame = bytes(self._memory.view[start : start + wc.byte_len])
            self._qp.post_recv(self._receive_request(wc.wr_id))
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        """Act on a frame; anything but well-formed questions and answers is dropped."""
        heard = self._protocol.heard(frame)
        if heard is None or heard.mac[0] & 1 or heard.mac == _NO_MAC:
            return
        with self._changed:
            if any(heard.sender) and (heard.for_us or heard.sender in self._neighbours):
                self._neighbours[heard.sender] = heard.mac
                self._changed.notify_all()
        if heard.for_us and heard.asks:
            self._send(self._protocol.answer(heard))

    def _send(self, frame: bytes) -> None:
        """Send a frame; it is dropped when all slots are busy, as a full link would."""
        with self._send_lock:
            if not self._free:
                return
            slot = self._free.pop()
            start = (RECEIVES + slot) * SLOT
            self._memory.view[start : start + len(frame)] = frame
            piece = Sge(self._memory.address + start, len(frame), self._mr.lkey)
            try:
                self._qp.post_send(SendWr(_SEND | slot, sg_list=(piece,)))
            except VerbsError:
                self._free.append(slot)

    def _receive_request(self, slot: int) -> RecvWr:
        return RecvWr(slot, (Sge(self._memory.address + slot * SLOT, SLOT, self._mr.lkey),))
