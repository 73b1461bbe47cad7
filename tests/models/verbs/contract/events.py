"""Completion channels: arming, solicited events, waiting threads."""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from bluebridge.guest.verbs import CompletionQueue, SendFlags, VerbsError, WrOpcode
from tests.models.verbs.contract.common import OK, Devices, OnDevices, Pair


class Events(OnDevices):
    """Completion channels: arming, solicited events, waiting threads."""

    def test_one_event_for_each_arming(self, pair: Pair) -> None:
        a, b = pair
        for _ in range(12):
            b.cq.req_notify()
            b.receive()
            assert b.channel.get_event(0) is None
            a.send(WrOpcode.SEND, [a.sge(0, 1)])
            assert b.channel.get_event(2) is b.cq
            assert b.channel.get_event(0) is None
            b.expect(OK)
            a.expect(OK)

    def test_waiting_completions_tell_at_once(self, pair: Pair) -> None:
        a, b = pair
        b.receive()
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        a.expect(OK)
        assert b.channel.get_event(0.02) is None
        b.cq.req_notify()
        assert b.channel.get_event(2) is b.cq

    def test_solicited_only(self, pair: Pair) -> None:
        a, b = pair
        for _ in range(3):
            b.receive()
        b.cq.req_notify(solicited_only=True)
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        a.expect(OK)
        assert b.channel.get_event(0.02) is None
        a.send(WrOpcode.SEND, [a.sge(0, 1)], flags=SendFlags.SIGNALED | SendFlags.SOLICITED)
        a.expect(OK)
        assert b.channel.get_event(2) is b.cq
        b.expect(OK, OK)
        b.cq.req_notify(solicited_only=True)
        b.qp.modify_err()  # a failed completion counts as solicited
        assert b.channel.get_event(2) is b.cq

    def test_the_descriptor_is_readable_while_there_are_events(self, pair: Pair) -> None:
        a, b = pair
        assert not select.select([b.channel.fileno()], [], [], 0)[0]
        b.cq.req_notify()
        b.receive()
        a.send(WrOpcode.SEND, [a.sge(0, 1)])
        assert select.select([b.channel.fileno()], [], [], 2)[0]
        assert b.channel.get_event(0) is b.cq
        assert b.channel.get_event(0) is None
        assert not select.select([b.channel.fileno()], [], [], 0)[0]

    def test_a_waiting_thread_wakes(self, pair: Pair) -> None:
        """By a completion, by `wake`, and by `close`."""
        a, b = pair
        b.receive()
        b.cq.req_notify()
        woken: list[CompletionQueue | None] = []
        complete = partial(a.send, WrOpcode.SEND, [a.sge(0, 1)])
        ends: tuple[Callable[[], None], ...] = (complete, b.channel.wake, b.channel.close)
        for end in ends:
            thread = threading.Thread(target=lambda: woken.append(b.channel.get_event(5)))
            thread.start()
            time.sleep(0.01)
            end()
            thread.join(5)
            assert not thread.is_alive()
        assert woken == [b.cq, None, None]

    def test_a_queue_without_a_channel(self, devices: Devices) -> None:
        cq = devices[0].create_cq(4)
        assert cq.channel is None
        with pytest.raises(VerbsError, match="no completion channel"):
            cq.req_notify()
        assert cq.poll() == []
