"""Choosing how a pair is run, and tuning both of its sides together.

Tables are measured once a machine by running pairs through a bench (the simulator's or the GPU's), kept as
cells that an interrupted run goes on from, and condensed. `policy.choose` reads them in microseconds;
`cotune` searches communication and GEMM settings together, guided by the cost model. Nothing here knows
which executor measured.
"""
