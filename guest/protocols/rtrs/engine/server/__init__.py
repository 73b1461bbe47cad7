"""The engine of a server: sessions, their paths, and the operations that clients ask for.

`server.Server` is the engine.
"""
