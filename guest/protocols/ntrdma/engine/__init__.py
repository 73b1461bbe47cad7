"""The protocol of NTRDMA as state machines without I/O, thread or clock.

    engine = Engine(transport, host)        # `transport` stores into the peer's memory
    engine.link(True, now)                  # the peer can be reached
    engine.advance(now)                     # at `engine.deadline` at the latest
    engine.interrupt(now)                   # the peer has signalled
    engine.run(now)                         # after posting work
    engine.actions                          # what the owner does after each of these, in order

`now` is in seconds of any clock that does not go back. All calls come from one thread at a time.
What waits for an answer of the peer is a record, an `Operation`: there is no callback.

Modules, ground first: `transport` and `host` (what an engine stands on), `actions`, `indices`,
`memory`, `bells`, `entries`, `regions`, `peer_ethernet`, `peer`, `command_ring`, `frame_memory`,
`frame_receiver`, `frame_sender`, `ethernet`, `blocks`, `ping`, `port_states`, `port`, `schedule`,
`completions`, `receives`, `send_request`, `sends`, `queue_pair`, `operations`, `own_commands`,
`fast_regions`, `local`, `own_pairs`, `extensions`, `own_side` (own resources), `remote_pair`,
`remote_regions`, `remote` (twins of the peer's), `placement`, `requester`, `responder`,
`peer_side`, `engine`.
"""
