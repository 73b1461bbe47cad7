"""A checker of histories of connections: which clause of docs/clauses.md do two adapters break?

It is told what software asks of both adapters, then it sees messages that leave and arrive, entries
of completion and event queues, states and memory. It has no loop and no timer: when something may
or must be sent follows from what was seen.
"""
