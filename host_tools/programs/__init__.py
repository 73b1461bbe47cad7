"""Programs that run between the two guests of a pair, and the kernel's clients of a bridge.

`running` is one of them while it runs, `perftest` a server and its client, `ntb_clients` loads the
bridge's.
"""
