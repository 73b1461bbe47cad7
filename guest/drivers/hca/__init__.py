"""The user-space driver of a ConnectX-3: bring-up, queues, memory regions; see `guest.verbs`."""
