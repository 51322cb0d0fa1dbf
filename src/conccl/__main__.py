"""``python -m conccl`` is ``conccl``."""

from conccl.cli.start import run

run()
