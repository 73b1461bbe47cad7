"""RNBD as state machines over the engines of RTRS: no I/O, no thread, no clock.

`client.RnbdClient` and `server.RnbdServer` are handed the actions that an RTRS engine has for the
layer above, and give out actions of their own (`actions.Action`). Both behave as the modules
rnbd_client and rnbd_server of Linux 6.12.
"""
