"""The command line: each command parses, calls one function of the floors below, and renders.

A command module imports at its top only what `conccl --help` needs; the packages that do the work are
imported when the command runs.
"""
