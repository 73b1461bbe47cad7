"""`python -m bluebridge.device.hca.field_words`: the page docs/fields.md."""

from __future__ import annotations

from bluebridge.device.hca.field_words.page import page

if __name__ == "__main__":
    print(page(), end="")
