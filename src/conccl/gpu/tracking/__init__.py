"""What runs on an NVIDIA GPU itself: kernels that count what they have finished, and what waits for counts.

A counter is a word of device memory that a kernel adds to and a stream waits for (`cuStreamWaitValue32`), so
a transfer begins while the kernel that makes its bytes goes on. Every wait has a limit.
"""
