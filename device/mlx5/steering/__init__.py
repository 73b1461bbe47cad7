"""Which receive queues get a frame: flow tables, TIRs and tables of queues."""
