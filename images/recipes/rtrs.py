"""RTRS and RNBD, which Debian's kernel is built without, and the kernel's own network block device.

Built unchanged from Debian's kernel source. Not part of `make setup`: built when RTRS is first
requested. ext4, which mounts ext2 as well, is for file systems on the mapped devices; the guest's
root has the back ends brd, null_blk and loop.
"""

from __future__ import annotations

from bluebridge.images.recipes.module_parts import Part, PartsRecipe

RTRS = "drivers/infiniband/ulp/rtrs"


class RtrsRecipe(PartsRecipe):
    """rtrs-core, rtrs-client, rtrs-server, rnbd-client, rnbd-server; nbd and ext4."""

    name = "rtrs-modules"
    parts = (
        Part(
            RTRS,
            tuple(
                f"CONFIG_INFINIBAND_RTRS{side}=m"
                for side in ("", "_CLIENT", "_SERVER")  # the first is a symbol without a prompt
            ),
        ),
        Part(
            "drivers/block/rnbd",
            ("CONFIG_BLK_DEV_RNBD_CLIENT=m", "CONFIG_BLK_DEV_RNBD_SERVER=m"),
            after=RTRS,
            headers=RTRS,
        ),
    )
    stock = ("nbd", "ext4")
