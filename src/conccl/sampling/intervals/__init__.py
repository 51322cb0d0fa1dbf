"""Simulation points: the few intervals of a program's run that stand for all of it.

A single-threaded program of x86-64 Linux is run, its run is cut into intervals, the intervals are grouped by
the code that they execute, and one of each group is costed in detail; weights project the whole. Two ways to
get there: SimPoint's, which translates the whole run to count basic blocks, and DARTS', which lets the
program run natively, cuts it at markers (an instruction and how often it has executed) and translates only
the chosen intervals. The parts in C (`csrc`) are built on first use.
"""
