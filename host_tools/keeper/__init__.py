"""Pairs that outlive the command that started them: a keeper process for each, and a registry.

`registry` lists the pairs and removes folders of dead ones, `claims` takes a number for a new one,
`record` is the description of a pair that runs or has ended. `launch` forks keepers, `keeper` is
the work of such a process, `control` is its socket for requests.
"""
