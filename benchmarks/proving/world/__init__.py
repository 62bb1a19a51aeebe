"""A GPU fleet as the documentation of its parts describes it: no line of it is shared with what is put to the proof.

Nothing here imports `trimtab`; `tests/contracts/test_proving_world.py` holds it to that.
"""
