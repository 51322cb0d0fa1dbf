"""What users plug into PyTorch: the process-group backend, functions, and hooks for FSDP2 and DDP.

The backend is registered by `register`; everything else works on process groups of that backend. Bytes are
moved by `conccl.transports`; what torch.distributed asks for is translated here and nowhere else.
"""
