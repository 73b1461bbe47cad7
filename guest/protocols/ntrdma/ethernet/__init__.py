"""The Ethernet device of NTRDMA as a network interface of the guest.

`tap` is the kernel's TAP device, `interface` what joins it to an engine.
"""
