"""Queues in guest memory: event, completion, receive, shared receive and send queues."""
