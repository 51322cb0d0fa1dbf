"""Make the tables that the package ships: one file a known device, simulated.

python benchmarks/ship_tables.py [DEVICE ...]
"""

from __future__ import annotations

import sys
import time

from conccl.bench.executors import open_bench
from conccl.costs.catalogue import device_names, load_device, system_of
from conccl.tune.build import build_tables
from conccl.tune.tables import shipped_path, write_tables

GPUS = 8


def main() -> None:
    for name in sys.argv[1:] or device_names():
        device = load_device(name)
        gpus = min(GPUS, device.gpus_per_node)
        begin = time.perf_counter()
        tables = build_tables(
            open_bench("sim", device=device, gpus=gpus), system=system_of(device, gpus=gpus)
        )
        path = shipped_path(name)
        write_tables(path, tables)
        print(f"{name}: {time.perf_counter() - begin:.1f} s, {path.stat().st_size // 1024} KiB", flush=True)


if __name__ == "__main__":
    main()
