"""Messages of the FUSE protocol, version 7.31 (include/uapi/linux/fuse.h), in host byte order."""

from __future__ import annotations

import struct
from enum import IntEnum

MAJOR, MINOR = 7, 31


class Opcode(IntEnum):
    """enum fuse_opcode, as far as a tree needs it."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    ACCESS = 34
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


IN_HEADER = struct.Struct("=IIQQIIII")
"""len, opcode, unique, nodeid, uid, gid, pid, padding."""
OUT_HEADER = struct.Struct("=IiQ")
"""len, negative errno or 0, unique of the request."""
INIT_IN = struct.Struct("=IIII")
"""major, minor, max_readahead, flags."""
INIT_OUT = struct.Struct("=IIIIHHIIHHI28x")
"""major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran,
max_pages, map_alignment, flags2."""
ATTR = struct.Struct("=QQQQQQIIIIIIIIII")
"""ino, size, blocks, atime, mtime, ctime, three nanoseconds, mode, nlink, uid, gid, rdev,
blksize, flags."""
ENTRY_OUT = struct.Struct("=QQQQII")
"""nodeid, generation, entry_valid, attr_valid, two nanoseconds; the attributes follow."""
ATTR_OUT = struct.Struct("=QII")
"""attr_valid, nanoseconds, padding; the attributes follow."""
OPEN_OUT = struct.Struct("=QII")
"""file handle, flags, padding."""
RW_IN = struct.Struct("=QQIIQII")
"""file handle, offset, size, flags, lock owner, open flags, padding; of a WRITE data follows."""
WRITE_OUT = struct.Struct("=II")
"""The answer to WRITE: size, padding."""
FORGET_IN = struct.Struct("=Q")
"""The request FORGET: the number of look-ups of the inode that the kernel forgets."""
BATCH_FORGET_IN = struct.Struct("=II")
"""count, padding; so many FORGET_ONE follow."""
FORGET_ONE = struct.Struct("=QQ")
"""One inode of BATCH_FORGET: inode, number of look-ups."""
OPEN_IN = struct.Struct("=II")
"""flags as of open(2), open flags."""
INTERRUPT_IN = struct.Struct("=Q")
"""unique of the request that is interrupted."""
RELEASE_IN = struct.Struct("=QIIQ")
"""file handle, flags, release flags, lock owner."""
STATFS_OUT = struct.Struct("=QQQQQIIII24x")
"""blocks, free, available, files, free files, block size, name length, fragment size, padding."""
DIRENT = struct.Struct("=QQII")
"""inode, offset of the next entry, name length, type; the name follows, padded to 8 bytes."""

OPEN_DIRECT_IO = 1
