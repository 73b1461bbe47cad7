"""What krping's CQ handler does with a completion: statistics, and the thread's next state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bluebridge.guest.krping.options import Test
from bluebridge.guest.krping.resources import ADVERTISEMENT, Resources
from bluebridge.guest.krping.state import State, after_advertisement, after_go_ahead
from bluebridge.guest.verbs import Wc, WcOpcode, WcStatus

if TYPE_CHECKING:
    from bluebridge.guest.krping.thread import KrpingThread

_SUCCESS, _FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
_RECV, _SEND = WcOpcode.RECV, WcOpcode.SEND
_WRITE, _READ = WcOpcode.RDMA_WRITE, WcOpcode.RDMA_READ


def completed(thread: KrpingThread, completion: Wc, resources: Resources) -> None:
    """Take note of one completion of `thread`'s queue pair."""
    debugging = thread.log.debugging
    if thread.state is State.ERROR:
        if debugging:
            thread.log.note("cq completion in ERROR state")
        return
    if completion.status is not _SUCCESS:
        _failed(thread, completion)
        return
    opcode, stats = completion.opcode, thread.stats
    if opcode is not _RECV:
        thread.under_way -= 1
    if opcode is _RECV:
        if debugging:
            thread.log.line("recv completion")
        stats.recv_bytes += ADVERTISEMENT.size
        stats.recv_msgs += 1
        _received(thread, completion, resources)
    elif opcode is _SEND:
        if debugging:
            thread.log.line("send completion")
        stats.send_bytes += ADVERTISEMENT.size
        stats.send_msgs += 1
    elif opcode is _READ:
        if debugging:
            thread.log.line("rdma read completion")
        stats.read_bytes += resources.rdma_wr.sg_list[0].length
        stats.read_msgs += 1
        thread.state = State.RDMA_READ_COMPLETE
    elif opcode is _WRITE:
        if debugging:
            thread.log.line("rdma write completion")
        stats.write_bytes += resources.rdma_wr.sg_list[0].length
        stats.write_msgs += 1
        thread.state = State.RDMA_WRITE_COMPLETE


def _received(thread: KrpingThread, completion: Wc, resources: Resources) -> None:
    """The peer's SEND: an advertisement, or on a pinging client the go-ahead."""
    if completion.byte_len != ADVERTISEMENT.size:
        thread.log.note(f"Received bogus data, size {completion.byte_len}")
        thread.fail(f"the peer sent {completion.byte_len} bytes where krping sends 16")
        return
    if thread.options.server or thread.options.test is not Test.PING:
        thread.remote = resources.received()
        if thread.log.debugging:
            address, key, size = thread.remote
            thread.log.line(f"Received rkey {key:x} addr {address:x} len {size} from peer")
        thread.state = after_advertisement(thread.state)
    else:
        thread.state = after_go_ahead(thread.state)
    resources.qp.post_recv(resources.recv_wr)


def _failed(thread: KrpingThread, completion: Wc) -> None:
    """A completion with an error. A flushed one only says that the connection ended."""
    if completion.status is _FLUSHED:
        if thread.log.debugging:
            thread.log.line("cq flushed")
        return
    thread.log.note(
        f"cq completion failed with wr_id {completion.wr_id:x} status {completion.status:d} "
        f"opcode {completion.opcode:d} vender_err {completion.vendor_err:x}"
    )
    thread.fail(f"a work request failed with status {completion.status.name}")
