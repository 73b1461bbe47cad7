"""`python -m bluebridge.device.mlx4.field_words`: the page docs/fields.md."""

from __future__ import annotations

from bluebridge.device.mlx4.field_words.page import page

if __name__ == "__main__":
    print(page(), end="")
