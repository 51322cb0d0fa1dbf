"""GPUs that are not there: an executor that turns a plan into a timeline by discrete-event simulation.

Kernels are handed to SMs CTA by CTA and copies to engines; what runs at the same time shares SMs, L2, HBM and
links by rate, and every rate is worked out anew when the set of running things changes. Contention comes out
of that and out of nothing else: no strategy has a constant of its own. The same plan gives the same timeline,
bit for bit.
"""
