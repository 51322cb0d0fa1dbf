"""Few that stand for many: iterations of a training run, intervals of a program, kernels of a trace.

Each choice is a small set with weights, and says how well it projects the whole. Nothing here needs a GPU.
"""
