"""The table: which CUDA kernels an aten op becomes, by its shapes, strides and element types.

One module a family. To teach it an op, write a function from an `AtenCall` to kernels and put it into the
family's table (or, from outside, into `table.register`).
"""
