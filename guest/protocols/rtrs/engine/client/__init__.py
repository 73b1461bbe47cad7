"""A client's session: paths that come and go, and requests that outlive them.

`session.ClientSession` is the engine; `path.Path` connects and breaks, `dispatch` chooses the path
of each request, `traffic` has those of one path.
"""
