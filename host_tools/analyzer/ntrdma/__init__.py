"""Names NTRDMA's stores into the peer's memory and the work requests that they belong to.

`stores` finds stores in the events, `ports` follows what two ports tell each other, `decoder`
describes it, `requests` and `batches` find out which stores belong together.
"""
