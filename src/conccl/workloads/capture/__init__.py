"""PyTorch code as the kernels that CUDA would run, found on a machine without a GPU.

Tensors that the code believes to be on a GPU are tensors of PyTorch's meta device: they have shapes and no
bytes. One mode (`present`) lets them look like CUDA tensors and takes the decisions that PyTorch takes by
device; a second one (`record`) notes each aten op that comes through, forward and backward. A table
(`kernels`) says which kernels an op becomes. This is the one place in workloads that imports torch.
"""
