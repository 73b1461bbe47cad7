"""A model of the verbs, held against two HCAs: every completion, every event and every byte.

`python -m tests.models.verbs_model --steps 100000 --seed 1` runs many steps, `test_verbs_model.py`
a few. What is modelled: RC with a receive queue of its own and with a shared one, and UC; states,
regions and windows, registration and invalidation by work requests, receivers that are not ready,
peers that are silent, memory that goes and comes.
"""
