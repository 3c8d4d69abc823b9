"""What can be classified: a file, the bytes of one, or an image on the web."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tidegate.client.errors import ImageError

#: A path (``str`` or ``Path``), the bytes of an image, or a URL that begins with ``http://`` or ``https://``.
Image = str | os.PathLike[str] | bytes
ImageT = TypeVar("ImageT", bound=Image)


@dataclass(frozen=True)
class ImageBytes:
    """An encoded image, and the name of its file, which is told for no purpose but people's."""

    content: bytes
    name: str = "image"


@dataclass(frozen=True)
class ImageUrl:
    """An image that Tidegate is to fetch by itself."""

    url: str


def read_image(image: Image) -> ImageBytes | ImageUrl:
    """The image, ready to be sent; a file is read whole.

    Raises:
        ImageError: the file cannot be read; its code is ``unreadable_file``.
    """
    if isinstance(image, bytes):
        return ImageBytes(image)
    if isinstance(image, str) and image.lower().startswith(("http://", "https://")):
        return ImageUrl(image)
    path = Path(image)
    try:
        # A file may have a name that is no text; it is told for people's sake alone.
        return ImageBytes(path.read_bytes(), path.name.encode("utf-8", "replace").decode())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ImageError(f"{path} cannot be read: {reason}.", code="unreadable_file") from error
