"""Programs that run between the two guests of a pair, and the kernel's clients of a bridge.

`readiness` has conditions for servers, `client_server` runs a server and its client, `perftest`
knows what perftest prints, `ntb_guests` and `ntb_clients` load the bridge's clients.
"""
