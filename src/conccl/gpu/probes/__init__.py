"""Probes of the GPU: each says what one thing can do here, by trying it, in a process of its own.

A probe is a function without arguments that yields findings. Kernels that hold SMs are bounded in time, so
that a probe that is stopped leaves a free GPU behind within seconds.
"""
