"""What queues of every adapter have in common: their buffers in guest memory."""
