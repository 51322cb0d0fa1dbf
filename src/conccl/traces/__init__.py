"""Profiler traces: reading and writing them, and what they say about overlap.

Readers turn traces into `conccl.core.timeline.Timeline`; the analyses take timelines from anywhere, return
records, and never print, round or draw.
"""
