"""What needs a GPU: the executor that runs plans on it, and the probes that say what this machine can do.

Plans are turned into streams, waits and launches by code that knows no CUDA (`program`, `proof`, `bench`),
behind one seam (`driver.Driver`); only the driver itself, the kernels and the probes touch CUDA, and they
are imported when asked for. What a probe does is bounded in time and in a process of its own.
"""
