"""NTRDMA: RDMA by stores into the peer's memory, through a bridge or over TCP.

`engine` is the protocol as state machines.
"""
