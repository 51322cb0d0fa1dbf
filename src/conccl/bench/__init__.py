"""Plans through an executor become measurements, and measurements the numbers of concurrent execution.

A bench measures one plan; characterisation measures pairs alone and by every strategy; the store keeps every
sample with its environment, so that a sweep can be resumed and two machines compared. Nothing here knows
whether a simulator or a GPU ran.
"""
