"""An InfiniBand subnet inside the server: cables, a switch, a subnet manager, its administrator.

`InfinibandFabric` is the fabric; nodes are made of `PortAgent`s, which hold what subnet management
may read and set of a port, whether it belongs to an HCA or to the switch.
"""
