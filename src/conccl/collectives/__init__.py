"""Collective algorithms as pure functions that yield fragments of a Plan, and the proof that they are right.

`choose.fragment` is the one entry: from a collective to the moves and reductions that carry it out, on which
rank, lane and engine, after what. `interpreter` executes a fragment on numpy buffers, `checker` proves that
every byte arrives once and that nothing can race or hang. The simulator prices fragments and the transports
carry them out; nothing here does either.
"""
