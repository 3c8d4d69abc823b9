"""One row of a batch: an encoded image as the model wants it, whichever way that is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tidegate.regions import Box
from tidegate.settings import Settings
from worker.contract import ModelContract
from worker.images import ImageLimits, cut_out, inspect, prepare, prepare_regions


class RowMaker:
    """Fills rows under the settings' limits."""

    def __init__(self, settings: Settings) -> None:
        self._limits = ImageLimits(max_bytes=settings.max_image_bytes, max_pixels=settings.max_image_pixels)

    def fill(
        self, image: bytes, contract: ModelContract, rows: NDArray[Any], regions: Sequence[Box] | None = None
    ) -> None:
        """Write one encoded image into the first row, or each of its regions into one.

        Args:
            image: encoded, of any format and from anybody.
            contract: of the model.
            rows: ``[1, ...image shape]`` of the contract's type, or as many as there are regions.
            regions: what to cut out of the upright image; None for all of it.

        Raises:
            UnsupportedFormat: it is no image in a format that is accepted.
            ImageTooLarge: more pixels than the limits allow.
            ImageCorrupt: it is broken or truncated.
            InvalidField: a region reaches beyond the image, or they have too many pixels together.
        """
        plan = contract.preprocessing
        if plan is not None and regions is not None:
            prepare_regions(image, regions, plan=plan, limits=self._limits, out=rows)
        elif plan is not None:
            prepare(image, plan=plan, limits=self._limits, out=rows[0])
        elif regions is not None:
            for index, part in enumerate(cut_out(image, regions, limits=self._limits)):
                rows[index, ...] = part
        else:
            inspect(image, limits=self._limits)
            rows[...] = image


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
