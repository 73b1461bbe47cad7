"""`bluebridge ntrdma demo` and `bluebridge ntrdma perf`: RDMA through a bridge between two guests.

`options` is the command line, `command` what it does, `one_write` one RDMA write in the bus log.
"""
