"""Completions in NTRDMA's world, held against the model: order, status, and every byte."""

from __future__ import annotations

from bluebridge.guest.verbs.enums import WcFlags, WcOpcode, WcStatus, WrOpcode
from bluebridge.guest.verbs.values import Wc
from tests.world.ntrdma.model import LOSSES, RACES, STATUSES, WRITES, Operation
from tests.world.ntrdma.posting import Posting
from tests.world.ntrdma.side import End

_LOST_RECEIVES = {WcStatus.WR_FLUSH_ERR, WcStatus.MW_BIND_ERR}


class Completing(Posting):
    """Polls, and compares."""

    def poll(self, number: int) -> None:
        """Take what has completed on one side, and compare."""
        side = self.sides[number]
        for queue in side.queues:
            while found := queue.poll(16):
                for wc in found:
                    if wc.wr_id in self.operations:
                        self._sent(wc)
                    else:
                        self._received(number, wc)
        side.shared.deal()
        side.engine.run(self.now)

    # -- sends ----------------------------------------------------------------------------------

    def _sent(self, wc: Wc) -> None:
        operation = self.operations.pop(wc.wr_id)
        self._before(operation, wc.wr_id)
        if wc.status is WcStatus.SUCCESS:
            assert operation.signaled
            self._succeeded(operation)
            return
        self.failed += 1
        self.endings[operation.wrong or operation.kind, wc.status] += 1
        fitting = RACES if operation.may_fail else LOSSES
        if operation.wrong is not None:
            fitting = fitting | {STATUSES[operation.wrong]}
        assert wc.status in fitting, f"{operation} ended with {wc.status.name}"

    def _before(self, operation: Operation, wr_id: int) -> None:
        """Settle earlier work of the same queue pair: unsignaled, it has succeeded by now."""
        place = operation.number, operation.index
        earlier = [
            key
            for key, each in self.operations.items()
            if key < wr_id and (each.number, each.index) == place
        ]
        for key in earlier:
            each = self.operations.pop(key)
            assert not each.signaled, f"{each} is overtaken"
            self._succeeded(each)

    def _succeeded(self, operation: Operation) -> None:
        assert operation.wrong is None, f"{operation} was carried out"
        operation.done = True
        self.completed += 1
        self.endings[operation.kind, WcStatus.SUCCESS] += 1
        end = self.sides[operation.number].ends[operation.index]
        window = operation.window
        if operation.kind is WrOpcode.REG_MR:
            assert window is not None
            window.valid = True
        elif operation.kind is WrOpcode.LOCAL_INV:
            self._window_ended(operation.number, end)
        else:
            self._compare(operation)
            end.free.append(operation.source)
            if operation.target >= 0 and window is None and not operation.orphan:
                peer = self.sides[1 - operation.number]
                peer.ends[operation.index].free.append(operation.target)

    def _compare(self, operation: Operation) -> None:
        """The bytes of a write or a read have come."""
        changed = self.changed(operation)
        if changed is None or (changed[0] != operation.number and operation.orphan):
            return
        if operation.kind in WRITES and operation.seen is not None:
            view = operation.seen
        else:
            view = self.settles(*changed)
        assert operation.shows(view), f"{operation} brought other bytes"

    def _window_ended(self, number: int, end: End) -> None:
        """Nothing lands there any more: its slot may be used anew at once."""
        window, end.window = end.window, None
        if window is None:
            assert end.busy, "a registration has ended twice"  # else the reset has ended it
            return
        content = self.settles(number, window.slot)
        for each in self.operations.values():
            if each.window is window and each.target >= 0:
                each.seen = content
        end.free.append(window.slot)

    # -- receives -------------------------------------------------------------------------------

    def _received(self, number: int, wc: Wc) -> None:
        side = self.sides[number]
        end = next(end for end in side.ends if end.pair.key == wc.qp_num)
        if end.sharing:
            slot = side.shared_slots.pop(wc.wr_id)
        else:
            wr_id, slot = end.receives.popleft()
            assert wr_id == wc.wr_id, "receives complete in order"
        view = self.settles(number, slot)
        if end.sharing:
            side.pool.append(slot)
        if wc.status is not WcStatus.SUCCESS:
            assert wc.status in _LOST_RECEIVES
            return
        if not end.sharing:
            end.free.append(slot)
        self._arrived(number, end, wc, view)

    def _arrived(self, number: int, end: End, wc: Wc, view: bytes) -> None:
        """A message, or the end of a write; `view` is the receive's memory."""
        operation = self.sent[1 - number][end.index].popleft()
        wrote = operation.kind is WrOpcode.RDMA_WRITE_WITH_IMM
        flags = {WrOpcode.SEND: WcFlags(0), WrOpcode.SEND_WITH_INV: WcFlags.WITH_INV}.get(
            operation.kind, WcFlags.WITH_IMM
        )
        assert wc.opcode is (WcOpcode.RECV_RDMA_WITH_IMM if wrote else WcOpcode.RECV)
        assert (wc.flags, wc.byte_len) == (flags, operation.length)
        if not wrote:
            assert view[: operation.length] == operation.data, f"{operation} brought other bytes"
        elif not operation.done and operation.seen is None:
            assert operation.shows(bytes(self.sides[number].view(operation.target)))
        if operation.kind is WrOpcode.SEND_WITH_INV:
            assert end.window is None or wc.imm == end.window.key
            self._window_ended(number, end)
