"""A GEMM and the transfer that it feeds or is fed by, as one call: functions, custom ops, linear modules.

The same functions run by several ways (`conccl.strategies.ways`): one after the other, in chunks whose
transfers go on beside the next ones, or by a kernel that counts its finished tiles. Which one, the caller or
`conccl.strategies.fused_choice` says; what is computed is the same.
"""
