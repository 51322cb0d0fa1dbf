"""The space of ways to overlap a pair, as data, and how each becomes a plan.

A strategy is a frozen value of orthogonal parts: engine x sharing x granularity. Lowering turns a pair, a
strategy and a system into a plan and decides nothing that the value does not say; heuristics fill in what a
value leaves open, without running anything.
"""
