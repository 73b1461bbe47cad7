"""Stock RDMA programs between two guests, one by one, with a verdict each.

`suites/` says what is run, `runner` runs it over the guests' agents, `journal` keeps it as JSON
lines so that an interrupted run can go on, `page` writes the table.
"""
