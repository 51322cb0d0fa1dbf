"""Run one probe and print what it found: ``python -m conccl.gpu.probes NAME``."""

from __future__ import annotations

import importlib
import json
import sys

from conccl.core.records import to_json_value
from conccl.gpu.probing import MARK


def main(name: str, /) -> None:
    """Run the probe of this name."""
    module = importlib.import_module(f"conccl.gpu.probes.{name}")
    found = [to_json_value(finding) for finding in module.probe()]
    sys.stdout.write(f"\n{MARK}{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
