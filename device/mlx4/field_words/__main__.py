"""`python -m bluebridge.device.mlx4.field_words`: the page of all fields."""

from __future__ import annotations

from bluebridge.device.mlx4.field_words.page import page

if __name__ == "__main__":
    print(page(), end="")
