"""Carries out fragments of plans among processes: what really moves the bytes.

A fragment is compiled once into a program for each rank (`compiling`), in which blocks are named and not yet
sized; a call binds a program to its tensors tile by tile (`tiles`) and a transport carries it out. ``host``
is the transport through shared memory. What a peer does not do in time, does differently or dies of ends a
call with an error on every rank; nothing waits for ever and nothing falls back in silence.
"""
