"""The Ethernet device of NTRDMA as a network interface of the guest.

`options` is what it is to be, `addresses` its IPv4 addresses, `tap` the kernel's TAP device,
`interface` what joins it to an engine.
"""
