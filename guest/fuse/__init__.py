"""A tree of directories, files and links as a FUSE file system, in pure Python.

No library and no helper program is used: `mount` mounts a connection to /dev/fuse, `connection`
answers the kernel's requests on it, `tree` is what a program puts there.
"""
