"""A block device /dev/nbdN of the kernel's nbd module, whose requests a client carries to a server.

The kernel speaks the transmission phase of the NBD protocol over a socket pair: `stream` is that
protocol without I/O, `device` moves its bytes, `kernel` makes and ends the device by netlink.
"""
