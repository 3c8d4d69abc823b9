"""One row of a batch: an encoded image as the model wants it, whichever way that is."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tidegate.settings import Settings
from worker.contract import ModelContract
from worker.images import ImageLimits, inspect, prepare


class RowMaker:
    """Fills rows under the settings' limits."""

    def __init__(self, settings: Settings) -> None:
        self._limits = ImageLimits(max_bytes=settings.max_image_bytes, max_pixels=settings.max_image_pixels)

    def fill(self, image: bytes, contract: ModelContract, row: NDArray[Any]) -> None:
        """Write one encoded image into ``row``, of the contract's image shape and type.

        Raises:
            UnsupportedFormat: it is no image in a format that is accepted.
            ImageTooLarge: more pixels than the limits allow.
            ImageCorrupt: it is broken or truncated.
        """
        if contract.preprocessing is None:
            inspect(image, limits=self._limits)
            row[...] = image
        else:
            prepare(image, plan=contract.preprocessing, limits=self._limits, out=row)


def sample_batch(contract: ModelContract) -> NDArray[Any]:
    """A batch of one that the model must be able to answer, for warming it up: a black image.

    Returns:
        [1, ...image shape], of the contract's type.
    """
    batch = contract.empty_batch(1)
    batch[...] = BLACK_PIXEL_PNG if contract.preprocessing is None else 0
    return batch


#: A PNG of one black pixel.
BLACK_PIXEL_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de"
    "0000000c49444154789c63606060000000040001f61738550000000049454e44ae426082"
)
