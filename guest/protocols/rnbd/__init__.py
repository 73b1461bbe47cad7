"""Block devices over RTRS: a server that exports files and RAM disks, a client that maps them.

`engine` is the protocol without I/O, `backend` what a server exports, `nbd` the block device in a
client's guest.
"""
