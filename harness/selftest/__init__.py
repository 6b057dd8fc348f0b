"""``runner.py selftest``: seeded faults in the cells where they must show, run like any other cell, then looked at.

    selftest.yaml ─► plan: faults × cells, and the same cells without ─► the ordinary run ─► outcome ─► render

Nothing here judges a cell: an outcome compares the verdict that the harness gave with the one it had to give. Beside
it: ``front`` shows faults of the harness's own front in child processes.
"""
