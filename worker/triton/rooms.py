"""Where batches are prepared: in memory that Triton reads as well, where it turns out that it can."""

from __future__ import annotations

from contextlib import suppress
from math import prod
from typing import Any

import structlog
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from tidegate.errors import InferenceTimeout, ModelUnreachable
from tidegate.settings import Settings
from worker.contract import ModelContract
from worker.limits import CallLimits
from worker.shared_memory import SharedRegion, remove_orphans
from worker.triton.channel import one_address
from worker.triton.failures import MESSAGE_LIMIT, translate

log = structlog.get_logger(__name__)


class SharedRooms:
    """The shared memory of one child, as far as Triton can read it; otherwise rooms are ordinary arrays."""

    def __init__(self, client: InferenceServerClient, settings: Settings) -> None:
        self._client = client
        self._timeout_seconds = settings.probe_timeout_seconds
        self._limits = CallLimits.of(settings)
        self._wanted = settings.triton_shm == "on" or (
            settings.triton_shm == "auto" and one_address(settings.triton_url)
        )
        self._required = settings.triton_shm == "on"
        self._region: SharedRegion | None = None
        self._registered = False
        self._serial = 0
        if self._wanted:
            self._forget_orphans()

    def room(self, contract: ModelContract, count: int) -> NDArray[Any]:
        """See :meth:`Triton.room`."""
        shape = (count, *contract.image_shape)
        if not self._wanted or contract.dtype.hasobject:
            return contract.empty_batch(count)
        if (
            not self._registered
            or self._region is None
            or self._region.size_bytes < prod(shape) * contract.dtype.itemsize
        ):
            # Made for the largest call at once, so that it need not grow with each.
            largest = max(count, self._limits.images_of(contract))
            self._provide(prod(contract.image_shape) * contract.dtype.itemsize * largest)
        if self._region is None or not self._registered:
            return contract.empty_batch(count)
        return self._region.array(shape, contract.dtype)

    def tensor(self, contract: ModelContract, batch: NDArray[Any]) -> InferInput | None:
        """The input that says where the batch lies; None when it does not lie in the region."""
        offset = self._region.offset_of(batch) if self._region is not None and self._registered else None
        if self._region is None or offset is None:
            return None
        tensor = InferInput(contract.input_name, list(contract.input_shape(len(batch))), contract.datatype)
        tensor.set_shared_memory(self._region.name, batch.nbytes, offset)
        return tensor

    def is_to_blame(self, error: InferenceServerException) -> bool:
        """Whether Triton refused a call because it does not know the region; then it is told of it again."""
        if "shared memory" not in (error.message() or "").lower():
            return False
        self._registered = False
        return True

    def close(self) -> None:
        """Give the memory back."""
        if self._region is not None:
            with suppress(InferenceServerException):
                self._client.unregister_system_shared_memory(self._region.name, client_timeout=self._timeout_seconds)
            self._region.remove()
            self._region, self._registered = None, False

    def _provide(self, size_bytes: int) -> None:
        """Have a region of that size that Triton knows, if it is to be had."""
        try:
            if self._region is None or self._region.size_bytes < size_bytes:
                self.close()
                self._serial += 1
                self._region = SharedRegion(size_bytes, serial=self._serial)
            else:
                # Triton may know it, if only its answer came too late; and it takes no name twice.
                self._client.unregister_system_shared_memory(self._region.name, client_timeout=self._timeout_seconds)
            self._client.register_system_shared_memory(
                self._region.name, self._region.key, self._region.size_bytes, client_timeout=self._timeout_seconds
            )
            self._registered = True
        except (OSError, InferenceServerException) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if isinstance(error, InferenceServerException) and isinstance(
            translate(error), ModelUnreachable | InferenceTimeout
        ):
            return
        if self._required:
            log.error("triton.shared_memory_refused", error=str(error)[:MESSAGE_LIMIT])
        self.close()
        self._wanted = False

    def _forget_orphans(self) -> None:
        for name in remove_orphans():
            with suppress(InferenceServerException):
                self._client.unregister_system_shared_memory(name, client_timeout=self._timeout_seconds)
