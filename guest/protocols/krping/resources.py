"""The queue pair, completion queue, buffers and keys of a thread.

As in krping.c: krping_setup_buffers.
"""

from __future__ import annotations

import struct

from bluebridge.guest.bus.interface import DmaMemory
from bluebridge.guest.protocols.krping.option_string import MemMode, Options, Test
from bluebridge.guest.protocols.krping.progress import KrpingError, Log
from bluebridge.guest.verbs import (
    AccessFlags,
    Device,
    FastRegistration,
    QpInit,
    QpType,
    RecvWr,
    SendFlags,
    SendWr,
    Sge,
    WrOpcode,
)

ADVERTISEMENT = struct.Struct(">QII")
"""The format of struct krping_rdma_info: address, rkey and size of a buffer, big-endian."""
PAGE = 4096
RECV_OFFSET = 0
SEND_OFFSET = 64
MAX_REG_PAGES = 511
SINK_ACCESS = AccessFlags.REMOTE_WRITE | AccessFlags.LOCAL_WRITE
ALL_ACCESS = SINK_ACCESS | AccessFlags.REMOTE_READ


class Resources:
    """Buffers and work requests as krping sets them up, for one side of one connection.

    `start` and `rdma` are the buffers of `size` bytes each, on pages of their own; `start` exists
    on the client and for the benchmarks. Work requests are made once and changed in place: an
    iteration costs no more Python than it must.
    """

    def __init__(self, device: Device, options: Options, log: Log) -> None:
        self.options = options
        self._log = log
        self.pd = device.alloc_pd()
        log.line(f"created pd {self.pd.pdn:016x}")
        self.channel = device.create_comp_channel()
        try:
            self.cq = device.create_cq(options.tx_depth * 2 + 4, self.channel)
            log.line(f"created cq {self.cq.cqn:016x}")
            init = QpInit(
                QpType.RC,
                self.cq,
                self.cq,
                max_send_wr=options.tx_depth + 4,
                max_recv_wr=3,
                max_send_sge=1,
                max_recv_sge=1,
            )
            self.qp = self.pd.create_qp(init)
        except BaseException:
            self.channel.close()
            raise
        log.line(f"created qp {self.qp.qpn:016x}")
        self.reg_mr: FastRegistration | None = None
        self._registered = False
        self._pages: dict[int, tuple[int, ...]] = {}
        self._set_up_buffers(device)
        self._set_up_requests()

    def _set_up_buffers(self, device: Device) -> None:
        options = self.options
        self._log.note(f"krping_setup_buffers called on cb {id(self):016x}")
        self._control = device.allocate(PAGE)
        self.control = self._control.view
        self._rdma = device.allocate(whole_pages(options.size))
        self.rdma = self._rdma.view[: options.size]
        self.rdma_address = self._rdma.address
        self._start: DmaMemory | None = None
        self.start, self.start_address = memoryview(b""), 0
        if not options.server or options.test is not Test.PING:
            self._start = device.allocate(whole_pages(options.size))
            self.start = self._start.view[: options.size]
            self.start_address = self._start.address
        self.dma_mr = self.pd.get_dma_mr(ALL_ACCESS)
        self.local_key = self.dma_mr.lkey
        if options.local_dma_lkey:
            key = device.local_dma_lkey
            if key is None:
                raise KrpingError("this HCA has no local dma lkey: leave local_dma_lkey out")
            self.local_key = key
        if options.mem_mode is MemMode.REG:
            self._set_up_reg_mr()
        self._log.note("allocated & registered buffers...")

    def _set_up_reg_mr(self) -> None:
        count = whole_pages(self.options.size) // PAGE
        if count > MAX_REG_PAGES:
            raise KrpingError(
                f"size={self.options.size} is too large for mem_mode=reg, "
                f"which takes at most {MAX_REG_PAGES * PAGE}"
            )
        self.reg_mr = self.pd.alloc_fast_reg_mr(count)
        self._log.note(f"reg rkey {self.reg_mr.rkey:#x} page_list_len {count}")
        for address in (self.rdma_address, self.start_address):
            self._pages[address] = tuple(address + PAGE * index for index in range(count))

    def _set_up_requests(self) -> None:
        base, size = self._control.address, ADVERTISEMENT.size
        self.recv_wr = RecvWr(0, (Sge(base + RECV_OFFSET, size, self.local_key),))
        self.send_wr = SendWr(
            opcode=WrOpcode.SEND,
            sg_list=(Sge(base + SEND_OFFSET, size, self.local_key),),
            send_flags=SendFlags.SIGNALED,
        )
        self.rdma_wr = SendWr(send_flags=SendFlags.SIGNALED)
        if self.options.server_inv and self.options.server:
            self.send_wr.opcode = WrOpcode.SEND_WITH_INV
        self._inv_wr = SendWr(opcode=WrOpcode.LOCAL_INV, send_flags=SendFlags(0))
        self._fenced_inv_wr = SendWr(opcode=WrOpcode.LOCAL_INV, send_flags=SendFlags.FENCE)
        self._reg_wr = SendWr(
            opcode=WrOpcode.REG_MR,
            send_flags=SendFlags(0),
            mr=self.reg_mr,
            page_size=PAGE,
            length=self.options.size,
        )

    def rdma_key(self, address: int, invalidate: bool) -> tuple[int, list[SendWr]]:
        """Return the key of one of the buffers, and the work requests that give it that key.

        With mem_mode=dma it is the region of all memory, without requests. With mem_mode=reg the
        requests are LOCAL_INV of the previous registration, when `invalidate` and there is one,
        then REG_MR with the next key byte.
        """
        mr = self.reg_mr
        if mr is None:
            return self.dma_mr.rkey, []
        chain = []
        if invalidate and self._registered:
            self._inv_wr.invalidate_rkey = mr.rkey
            chain.append(self._inv_wr)
        request = self._reg_wr
        request.key = mr.next_key()
        request.iova = address
        request.pages = self._pages[address]
        source = address == self.start_address
        request.access = AccessFlags.REMOTE_READ if source else SINK_ACCESS
        chain.append(request)
        self._registered = True
        if self._log.debugging:
            self._log.note(
                f"post_inv = {int(invalidate)}, reg_mr new rkey {request.key:#x} pgsz {PAGE} "
                f"len {request.length} iova_start {address:x}"
            )
        return request.key, chain

    def advertise(self, address: int) -> list[SendWr]:
        """Write a buffer's place into the send buffer; returns the requests up to the SEND."""
        key, chain = self.rdma_key(address, not self.options.server_inv)
        size = self.options.size
        ADVERTISEMENT.pack_into(self.control, SEND_OFFSET, address, key, size)
        if self._log.debugging:
            self._log.line(f"RDMA addr {address:x} rkey {key:x} len {size}")
        chain.append(self.send_wr)
        return chain

    def received(self) -> tuple[int, int, int]:
        """Return address, rkey and size that the peer advertised last."""
        address, key, size = ADVERTISEMENT.unpack_from(self.control, RECV_OFFSET)
        return address, key, size

    def read_chain(self, remote: int, rkey: int, length: int) -> list[SendWr]:
        """Return the work requests that read the peer's buffer into this side's.

        With mem_mode=reg a LOCAL_INV follows, fenced so that it waits for the READ. The hardware
        has no READ with invalidate (iWARP alone does): read_inv gets the same pair, which leaves
        the buffer's registration invalid after the READ exactly as that operation would.
        """
        key, chain = self.rdma_key(self.rdma_address, True)
        chain.append(self.rdma_request(WrOpcode.RDMA_READ, remote, rkey, length, key))
        if self.reg_mr is not None:
            self._fenced_inv_wr.invalidate_rkey = key
            chain.append(self._fenced_inv_wr)
            self._registered = False
        return chain

    def write_chain(self, remote: int, rkey: int, length: int) -> list[SendWr]:
        """Return the work requests that write this side's buffer to the peer's."""
        chain: list[SendWr] = []
        if self.options.local_dma_lkey:
            key = self.local_key
        else:
            key, chain = self.rdma_key(self.rdma_address, False)
        chain.append(self.rdma_request(WrOpcode.RDMA_WRITE, remote, rkey, length, key))
        if self._log.debugging:
            self._log.line(f"rdma write from lkey {key:x} laddr {self.rdma_address:x} len {length}")
        return chain

    def rdma_request(
        self, opcode: WrOpcode, remote: int, rkey: int, length: int, lkey: int
    ) -> SendWr:
        """Return the RDMA request, set to move `length` bytes of this side's RDMA buffer."""
        request = self.rdma_wr
        request.opcode, request.remote_addr, request.rkey = opcode, remote, rkey
        request.sg_list = (Sge(self.rdma_address, length, lkey),)
        return request

    def close(self) -> None:
        """Free all resources; the connection must be over."""
        self._log.line(f"krping_free_buffers called on cb {id(self):016x}")
        self.qp.destroy()
        self.cq.destroy()
        self.channel.close()
        if self.reg_mr is not None:
            self.reg_mr.close()
        self.dma_mr.close()
        self.rdma, self.start, self.control = (memoryview(b""),) * 3
        for memory in (self._control, self._rdma, self._start):
            if memory is not None:
                memory.free()
        self.pd.close()


def whole_pages(length: int) -> int:
    """Return `length` rounded up to pages."""
    return (length + PAGE - 1) & -PAGE
