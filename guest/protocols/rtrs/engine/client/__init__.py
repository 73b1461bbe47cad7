"""A client's session: paths that come and go, and requests that outlive them.

`session.ClientSession` is the engine; `path.Path` connects and breaks, `requests` are the requests
in flight, `policies` choose the path of each.
"""
