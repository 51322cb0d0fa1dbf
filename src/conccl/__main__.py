"""``python -m conccl`` is ``conccl``."""

from conccl.cli.main import run

run()
