"""Programs that run between the two guests of a pair, and the kernel's clients of a bridge.

`perftest` runs a server and its client, `ntb_clients` loads the bridge's.
"""
