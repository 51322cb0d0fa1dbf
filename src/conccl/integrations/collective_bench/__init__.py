"""Measures collectives of torch.distributed's backends: what `conccl bench` runs.

``launch`` starts the ranks as processes and hears what becomes of them; ``rank`` is what each of them does;
``calls`` has the collectives and ``data`` random elements and the elements that must come of them.
"""
