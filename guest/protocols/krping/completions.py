"""The handler of krping's completions: it counts them and sets the run's next state.

As in krping.c: krping_cq_event_handler.
"""

from __future__ import annotations

from bluebridge.guest.protocols.krping.option_string import Test
from bluebridge.guest.protocols.krping.progress import Progress
from bluebridge.guest.protocols.krping.resources import ADVERTISEMENT, Resources
from bluebridge.guest.protocols.krping.state import State, after_advertisement, after_go_ahead
from bluebridge.guest.verbs import Wc, WcOpcode, WcStatus

_SUCCESS, _FLUSHED = WcStatus.SUCCESS, WcStatus.WR_FLUSH_ERR
_RECV, _SEND = WcOpcode.RECV, WcOpcode.SEND
_WRITE, _READ = WcOpcode.RDMA_WRITE, WcOpcode.RDMA_READ


def completed(run: Progress, completion: Wc, resources: Resources) -> None:
    """Count one completion of `run`'s queue pair, and set the next state."""
    debugging = run.log.debugging
    if run.state is State.ERROR:
        if debugging:
            run.log.note("cq completion in ERROR state")
        return
    if completion.status is not _SUCCESS:
        _failed(run, completion)
        return
    opcode, stats = completion.opcode, run.stats
    if opcode is _RECV:
        if debugging:
            run.log.line("recv completion")
        stats.recv_bytes += ADVERTISEMENT.size
        stats.recv_msgs += 1
        _received(run, completion, resources)
    elif opcode is _SEND:
        if debugging:
            run.log.line("send completion")
        stats.send_bytes += ADVERTISEMENT.size
        stats.send_msgs += 1
    elif opcode is _READ:
        if debugging:
            run.log.line("rdma read completion")
        stats.read_bytes += resources.rdma_wr.sg_list[0].length
        stats.read_msgs += 1
        run.state = State.RDMA_READ_COMPLETE
    elif opcode is _WRITE:
        if debugging:
            run.log.line("rdma write completion")
        stats.write_bytes += resources.rdma_wr.sg_list[0].length
        stats.write_msgs += 1
        run.state = State.RDMA_WRITE_COMPLETE


def _received(run: Progress, completion: Wc, resources: Resources) -> None:
    """Take the peer's SEND: an advertisement, or on a pinging client the go-ahead."""
    if completion.byte_len != ADVERTISEMENT.size:
        run.log.note(f"Received bogus data, size {completion.byte_len}")
        run.fail(f"the peer sent {completion.byte_len} bytes where krping sends 16")
        return
    if run.options.server or run.options.test is not Test.PING:
        run.remote = resources.received()
        if run.log.debugging:
            address, key, size = run.remote
            run.log.line(f"Received rkey {key:x} addr {address:x} len {size} from peer")
        run.state = after_advertisement(run.state)
    else:
        run.state = after_go_ahead(run.state)
    resources.qp.post_recv(resources.recv_wr)


def _failed(run: Progress, completion: Wc) -> None:
    """Take a failed completion; a flushed one only says that the connection ended."""
    if completion.status is _FLUSHED:
        if run.log.debugging:
            run.log.line("cq flushed")
        return
    run.log.note(
        f"cq completion failed with wr_id {completion.wr_id:x} status {completion.status:d} "
        f"opcode {completion.opcode:d} vender_err {completion.vendor_err:x}"
    )
    run.fail(f"a work request failed with status {completion.status.name}")
