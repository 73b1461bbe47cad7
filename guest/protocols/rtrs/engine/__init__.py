"""The protocol of RTRS as state machines, which are fed with events and give out actions.

No thread, clock, socket or device is in this package. The caller of an engine calls a method for
each event, with the time `now` in seconds of any clock that does not go back, and then carries out
the actions (`actions.Action`) that wait in the engine, in order.
"""
