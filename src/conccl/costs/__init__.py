"""What devices are, and how long work takes on them when it has them to itself.

The catalogue reads device files, each number with its source. A cost model turns an op into kernels: CTAs,
and what each of them asks of SMs, caches, memory and links. The isolated time comes out of running the CTAs
in waves, contention out of running them with less. Each model says how far off it is on what it was not
fitted to. Nothing here runs anything; the simulator shares the GPU among kernels.
"""
