"""The protocol of NTRDMA as state machines without I/O, thread or clock.

    engine = Engine(transport, owner)       # `transport` stores into the peer's memory
    engine.link(True, now)                  # the peer can be reached
    engine.advance(now)                     # at `engine.deadline` at the latest
    engine.interrupt(now)                   # the peer has signalled
    engine.run(now)                         # after posting work

`now` is in seconds of any clock that does not go back. All calls come from one thread at a time.

Modules, ground first: `transport` (what an engine stands on), `indices`, `memory`, `bells`,
`entries`, `regions`, `peer_ethernet`, `peer`, `port`, `command_ring`, `completions`, `receives`,
`sends`, `queue_pair`, `remote_pair`, `remote` (twins of the peer's resources), `requester`,
`responder`, `own_commands`, `local` (own resources), `frame_memory`, `frame_receiver`,
`frame_sender`, `ethernet`, `engine`.
"""
