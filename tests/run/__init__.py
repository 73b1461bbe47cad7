"""Runs the suites that use guests; what failed in them is run once more, alone, at the end.

`python -m tests.run` is what `make test-all` calls. docs/testing.md says how to read its results.
"""
