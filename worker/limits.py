"""What one call to a model server may carry, and how images are dealt out to calls. Pure.

The model, the settings and the size of a message each set a limit; the lowest holds. :mod:`worker.calls` deals a
batch out, discovery tells the pool how large a batch is worth cutting, and ``worker/triton`` makes room for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from tidegate.errors import ModelContractError
from tidegate.settings import Settings
from worker.contract import ModelContract


@dataclass(frozen=True)
class CallLimits:
    """What one call may carry, whatever the model takes.

    Attributes:
        images: most images.
        size_bytes: most bytes of images, as the input tensor has them.
    """

    images: int
    size_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The limits that the settings set."""
        return cls(images=settings.batch_limit, size_bytes=settings.max_call_bytes)

    def images_of(self, contract: ModelContract) -> int:
        """Most images of this model in one call.

        A model that decodes images itself takes them as they were sent, each of another size: of those only the
        number is limited here, and :meth:`deal` looks at their bytes.

        Raises:
            ModelContractError: not even one fits.
        """
        images = min(self.images, contract.batch_limit)
        if contract.image_bytes is None:
            return images
        if contract.image_bytes > self.size_bytes:
            raise ModelContractError(
                f"model {contract.name} takes {contract.image_bytes} bytes for one image, and "
                f"TIDEGATE_MAX_CALL_BYTES allows {self.size_bytes} for a whole call"
            )
        return min(images, self.size_bytes // contract.image_bytes)

    def deal(self, sizes: Sequence[int], contract: ModelContract) -> Iterator[slice]:
        """Deal images out to calls, in their order, each call as full as it may be.

        Args:
            sizes: of each image, in bytes; one that is larger than a call may be has a call to itself.
            contract: of their model.
        """
        most = min(self.images, contract.batch_limit)
        start = total = 0
        for index, size in enumerate(sizes):
            if index > start and (index - start == most or total + size > self.size_bytes):
                yield slice(start, index)
                start, total = index, 0
            total += size
        if start < len(sizes):
            yield slice(start, len(sizes))
