"""The pytest plugin: labs as fixtures, options as marks, a scratch folder per test.

`plugin` is the entry point and the only module a test session without a lab ever imports. The page
for users is docs/testing.md.
"""
