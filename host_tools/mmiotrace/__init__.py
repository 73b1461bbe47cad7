"""The guest kernel's own record of its register accesses, held against the bus log.

`trace` reads mmiotrace's text, `compare` sets it beside the log, `session` makes one in a guest,
`command` is `bluebridge mmiotrace`.
"""
