"""Where work comes from: published models by name, configuration files, PyTorch code, pairs.

Everything here ends in ops (`conccl.core.ops`) and in plans of them; nothing here knows how long they take.
Only `capture` imports PyTorch.
"""
