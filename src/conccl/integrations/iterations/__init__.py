"""The iterations of a PyTorch training run: logged with their lengths and times, the chosen ones profiled.

`recorder` writes the log that `conccl sample iterations` chooses from; `chosen` runs and profiles only what
was chosen, here or on another machine. Both wrap a data loader; neither waits for the GPU in between.
"""
