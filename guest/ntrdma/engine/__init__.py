"""The protocol of NTRDMA as state machines without I/O, thread or clock.

    engine = Engine(transport, host)        # `transport` stores into the peer's memory
    engine.link(True, now)                  # the peer can be reached
    engine.advance(now)                     # at `engine.deadline` at the latest
    engine.interrupt(now)                   # the peer has signalled
    engine.run(now)                         # after posting work
    engine.actions                          # what the owner does after each of these, in order

`now` is in seconds of any clock that does not go back. All calls come from one thread at a time.
What waits for an answer of the peer is a record, an `Operation`: there is no callback.
"""
