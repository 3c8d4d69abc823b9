"""The one place that speaks to Triton, by tritonclient's gRPC client with a deadline on every call.

Made in a pool child, after the fork, and closed there: a gRPC channel must not cross a fork. ``client`` has the
calls, ``channel`` how Triton is reached, ``rooms`` the shared memory, and ``failures`` is where every error of gRPC
becomes one of ours, and nowhere else.
"""

from worker.triton.client import RepositoryModel, Triton

__all__ = ["RepositoryModel", "Triton"]
