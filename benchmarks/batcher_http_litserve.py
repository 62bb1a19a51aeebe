"""Serve the simulated device through LitServe: uvicorn and FastAPI, the device in a process of its own.

python -m benchmarks.batcher_http_litserve PORT WAIT_MS
"""

from __future__ import annotations

import sys
from typing import Any

import litserve

from benchmarks.batcher_device import MAX_BATCH, Device
from trimtab.units import MS_PER_S


class DeviceApi(litserve.LitAPI):  # type: ignore[misc]  # LitServe is optional: untyped here
    """One device."""

    def setup(self, device: object) -> None:
        """Begin."""
        self.simulated = Device()

    def predict(self, x: list[dict[str, Any]]) -> list[object]:
        """Run a batch."""
        return self.simulated.run(x)

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        """Answer one request."""
        return {"y": output["x"]}


def main() -> None:
    port, wait_ms = sys.argv[1:]
    api = DeviceApi(max_batch_size=MAX_BATCH, batch_timeout=int(wait_ms) / MS_PER_S)
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=int(port), generate_client_file=False, log_level="error", access_log=False)


if __name__ == "__main__":
    main()
