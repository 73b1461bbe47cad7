"""`bluebridge ntb demo`: what a bridge does, shown on a pair of its own.

`options` is its command line, `command` the sequence, `steps` what is done with the kernel's
drivers, `packet` one packet in the bus log.
"""
