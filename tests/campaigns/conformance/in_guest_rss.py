"""Runs in a guest: rdma-core's test of RSS, over work queues whose numbers are aligned.

    python3 in_guest_rss.py FOLDER

FOLDER holds the package `tests`. Its test skips for every ConnectX-3: there the numbers of a
table's work queues must be consecutive, from a multiple of the table's size on, and pyverbs cannot
ask for a range of them. Here work queues are made until some are. The RSS queue pair is brought to
RTR, too, which the test need not do for adapters that have no such states.
"""

from __future__ import annotations

import sys
import unittest
from importlib import import_module
from typing import Any

MOST = 64


def aligned(made: list[Any], count: int) -> list[Any]:
    """The last `count` of the work queues `made` if a table takes them, else nothing."""
    last = made[-count:]
    first = last[0].wqn
    fit = len(last) == count and first % count == 0
    return last if fit and [each.wqn for each in last] == list(range(first, first + count)) else []


def aligned_test(module: Any) -> type[unittest.TestCase]:
    """The test of the module `test_rss_traffic` with such work queues."""
    ready = module.WQAttr(attr_mask=module.e.IBV_WQ_ATTR_STATE, wq_state=module.e.IBV_WQS_RDY)

    attributes = import_module("pyverbs.qp").QPAttr

    class AlignedResources(module.RssRes):  # type: ignore[misc]
        wqs: list[Any]

        def create_ind_table(self) -> None:
            self.ind_tbl = module.RwqIndTable(self.ctx, self.initiate_table_attr())
            self.hash_conf = self.init_rx_hash_config()

        def create_wqs(self) -> list[Any]:
            self.made: list[Any] = []
            while not self.wqs and len(self.made) < MOST:
                cq = self.cqs[len(self.made) % len(self.cqs)]
                self.made.append(module.WQ(self.ctx, self.initiate_wq_attr(cq)))
                self.wqs = aligned(self.made, 1 << self.log_ind_tbl_size)
            for wq in self.wqs:
                wq.modify(ready)
            return self.wqs

        def create_qps(self) -> None:
            super().create_qps()
            init = attributes(qp_state=module.e.IBV_QPS_INIT, port_num=self.ib_port)
            for qp in self.qps:
                qp.modify(init, module.e.IBV_QP_STATE | module.e.IBV_QP_PORT)
                qp.modify(attributes(qp_state=module.e.IBV_QPS_RTR), module.e.IBV_QP_STATE)

    class AlignedTest(module.RSSTrafficTest):  # type: ignore[misc]
        def create_players(self) -> None:
            self.client = module.FlowRes(**self.dev_info)
            self.server = AlignedResources(**self.dev_info)

    return AlignedTest


def main() -> int:
    """Run it; exit status 0 when it passed, and was not skipped."""
    folder = sys.argv.pop(1)
    sys.path[:0] = [folder, f"{folder}/tests"]
    import_module("tests").parser.parse_args()
    test = aligned_test(import_module("tests.test_rss_traffic"))
    result = unittest.TextTestRunner(sys.stdout).run(test("test_rss_traffic"))
    return 0 if result.wasSuccessful() and not result.skipped else 1


if __name__ == "__main__":
    sys.exit(main())
