"""What processes of tests share from the start: warnings are errors there too, and PyTorch has one thread."""

import warnings

import torch
import torch._dynamo  # what the first custom op would load in each process
import torch.distributed

import conccl.integrations.register  # noqa: F401
import integrations.backend_jobs
import integrations.fused.fused_jobs  # noqa: F401
import transports.jobs  # noqa: F401

warnings.simplefilter("error")
torch.set_num_threads(1)
