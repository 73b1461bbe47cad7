"""`bluebridge ntrdma`: RDMA through a bridge between two guests, shown and measured.

`ntrdma_options` has the options of the command line, `ntrdma_command` the actions.
"""
