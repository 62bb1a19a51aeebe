"""Serve the simulated device through mosec: HTTP in Rust, the device in a process of its own.

python -m benchmarks.batcher_http_mosec PORT WAIT_MS
"""

from __future__ import annotations

import sys
from typing import Any

from mosec import Server, Worker

from benchmarks.batcher_device import MAX_BATCH, Device


class DeviceWorker(Worker):  # type: ignore[misc]  # mosec is optional: untyped here
    """One device."""

    def __init__(self) -> None:
        super().__init__()
        self._device = Device()

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run a batch."""
        self._device.run(data)
        return [{"y": item["x"]} for item in data]


def main() -> None:
    port, wait_ms = sys.argv[1:]
    sys.argv = ["mosec", "--address", "127.0.0.1", "--port", port, "--log-level", "error"]  # which mosec itself reads
    server = Server()
    server.append_worker(DeviceWorker, max_batch_size=MAX_BATCH, max_wait_time=int(wait_ms))
    server.run()


if __name__ == "__main__":
    main()
