"""The user-space driver of a ConnectX-5: bring-up, queues, memory keys; see `guest.verbs`."""
