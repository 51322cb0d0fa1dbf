"""The whole of a user's question about overlap, answered: where time goes, what contention costs, what to do.

Takes traces (files or a live profiler), runs every analysis of `conccl.traces` on them and joins the ranks.
Returns records; how they look is the reporters' business.
"""
