"""Independent matmuls run together in PyTorch: at once where a library of the device says that it is faster.

Results and gradients are those of ``a @ b``; what changes is how many run at once. Without a library of the
GPU, and on the CPU, they run one after the other.
"""
