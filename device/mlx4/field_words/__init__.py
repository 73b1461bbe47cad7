"""Words, as data, for what the adapter does with each field; `make docs` makes a page of them."""
