"""Stock RDMA programs between two guests, one by one, with a verdict each.

`suites/` says what is run, `runner` runs it, `results` keeps it as JSON lines, so that a run that
was stopped can go on, and makes pages of it. tests/vm/test_programs.py has a test for each.
"""
