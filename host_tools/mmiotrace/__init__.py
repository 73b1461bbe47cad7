"""Compares the guest kernel's own record of its register accesses with the bus log.

`trace` reads mmiotrace's text, `compare` compares it with the log, `session` makes one in a guest,
`mmiotrace_command` is `bluebridge mmiotrace`.
"""
