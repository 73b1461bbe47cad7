"""The port and the virtual port as drivers see them: registers, contexts, counters, events."""
