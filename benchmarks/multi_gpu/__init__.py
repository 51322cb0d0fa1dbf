"""The steps of the run on several GPUs, and what carries them out."""
