"""Pairs that outlive the command that started them: one keeper process per pair, and its registry.

`registry` knows which pairs there are and cleans up after dead ones, `record` is what a keeper says
of its pair, `epitaph` is what is remembered of a pair that ended badly. `launch` forks keepers,
`keeper` is what such a process does, `control` is how others ask it for something.
"""
