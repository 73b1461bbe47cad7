"""What tools find on the board and no driver touches: identity, semaphores, flash, VPD."""
