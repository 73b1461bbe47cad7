"""NTRDMA by name: what each store into the peer's memory is, and which work request it is for.

`stores` finds stores in the events, `ports` follows what two ports tell each other, `text` says it
in words for `decoder`, `publications` and `batches` say which stores belong together.
"""
