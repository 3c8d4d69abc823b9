"""Serves the app until it is told to end: ``run.py PORT``."""

from __future__ import annotations

import signal
import sys

import ray
from ray import serve

from benchmarks.peers.ray_serve.app import build

#: Logical processors: the ingress and the consumer ask for one each.
LOGICAL_CPUS = 4


def main() -> None:
    """Serve on a port of loopback."""
    ray.init(num_cpus=LOGICAL_CPUS, include_dashboard=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(build())
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
