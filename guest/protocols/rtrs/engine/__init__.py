"""The protocol of RTRS as state machines: fed with events, they give out actions.

No thread, clock, socket or device is in here. Whoever runs an engine calls a method for each event,
with the time `now` in seconds of any clock that does not go back, and then carries out the actions
(`actions.Action`) that wait in the engine, in order.
"""
