"""GEMMs that are fast together: GO-kernels and the logic that decides how many run at once.

GO-kernels are tuned under shared resources; the logic looks at what is ready and how busy the GPU is
(GOLDYLOC, arXiv:2409.02227). What is tuned on the simulator is a prediction and says so.
"""
