"""Planted defects: small edits of the product, each with the tests that must notice it."""
