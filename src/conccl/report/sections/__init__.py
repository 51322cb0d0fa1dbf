"""The sections of pages: each module turns records of one kind into a heading with blocks.

A section function takes records and returns `conccl.report.blocks.Section`; it formats and selects, and
leaves markup to the templates of the blocks.
"""
