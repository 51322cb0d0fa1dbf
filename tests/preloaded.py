"""What processes of tests share from the start: warnings are errors there too, and PyTorch has one thread."""

import warnings

import torch
import torch.distributed

import conccl.integrations.register  # noqa: F401
import integrations.backend_jobs  # noqa: F401
import transports.jobs  # noqa: F401

warnings.simplefilter("error")
torch.set_num_threads(1)
