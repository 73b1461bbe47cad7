"""What krping does on every provider of verbs: it knows none of them."""

from __future__ import annotations

import pytest

from tests.models.verbs.krping_pair import SERVER_IP, Side, both, start

Sides = tuple[Side, Side]
"""krping's server side and its client side."""


class KrpingContract:
    """Tests of a pair of sides; a class derives from it and has the fixture `sides`."""

    device_name: str

    @pytest.mark.parametrize(
        "options",
        [
            "size=64",
            "size=100000",
            "local_dma_lkey",
            "mem_mode=reg,size=20000",
            "mem_mode=reg,server_inv",
            "mem_mode=reg,server_inv,read_inv,local_dma_lkey,size=5000",
        ],
    )
    def test_pings(self, sides: Sides, options: str) -> None:
        """20 validated pings, counted alike on both sides."""
        served, asked = (run.result() for run in both(sides, f"count=20,validate,{options}"))
        assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
        assert served.iterations == asked.iterations == 20
        assert served.validated == asked.validated == 20
        assert (asked.stats["send_msgs"], asked.stats["recv_msgs"]) == (40, 40)
        assert served.stats["name"] == f"1-{self.device_name}"

    @pytest.mark.parametrize(
        "options", ["rlat,size=4096", "wlat,size=8", "bw,size=65536,tx-depth=16"]
    )
    def test_benchmarks(self, sides: Sides, options: str) -> None:
        """They end with the module's result line."""
        served, asked = (run.result() for run in both(sides, f"count=50,{options}"))
        assert (served.ok, asked.ok) == (True, True), (served.error, asked.error)
        assert asked.iterations == 50
        assert "krping: delta sec " in sides[1].text

    def test_nobody_listens(self, sides: Sides) -> None:
        """The connection manager's refusal reaches the user."""
        result = start(sides[1], f"client,addr={SERVER_IP},port=9999,count=1").result()
        assert result.error.startswith("nobody listens on port 9999")

    def test_several_at_once(self, sides: Sides) -> None:
        """Three pairs of commands on the same two devices."""
        runs = [both(sides, "count=50,validate,size=3000", port) for port in (9001, 9002, 9003)]
        assert all(run.result().ok for pair in runs for run in pair)
