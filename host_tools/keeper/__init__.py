"""Pairs that outlive the command that started them: one keeper process per pair, and its registry.

`registry` lists the pairs and removes folders of dead ones, `claims` takes a number for a new one,
`record` is the description of a pair, `end_record` why a pair has ended. `launch` forks keepers,
`keeper` is what such a process does, `control` is its socket for requests.
"""
