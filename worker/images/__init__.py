"""Encoded images into tensors. Only this package decodes, and only it imports Pillow.

What happens to an image, in order: ``tidegate.formats`` and ``screening`` judge its bytes, ``opening`` reads
its header under the limits, ``geometry`` decides which part is seen, ``colors`` makes opaque sRGB of it, and
``tensors`` writes it into the batch. ``docs/images.md`` tells the rules to users.
"""

from tidegate.formats import ImageFormat, ImageLimits
from worker.images.preparing import ImageFacts, inspect, prepare
from worker.images.regions import cut_out, prepare_regions

__all__ = ["ImageFacts", "ImageFormat", "ImageLimits", "cut_out", "inspect", "prepare", "prepare_regions"]
