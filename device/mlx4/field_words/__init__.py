"""What the adapter does with each field of its interface, as data; docs/fields.md is made of it."""
