"""Content codings of an answer, undone a little at a time: a short answer may stand for a gigabyte."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import httpx

from tidegate.errors import UrlNotAnImage, UrlUnreachable

#: Most bytes that come out at a time.
CHUNK_BYTES = 64 * 1024
#: For zlib: take the header of gzip or of zlib, whichever is there.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


def decoded(response: httpx.Response) -> Iterator[bytes]:
    """The body as it was before it was coded for the way, in chunks of at most ``CHUNK_BYTES``, or as they came.

    We ask for no coding; some servers code all the same.

    Raises:
        UrlNotAnImage: it is coded in a way that was not asked for and is not known here.
        UrlUnreachable: the code is broken.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        yield from response.iter_raw()
    elif coding in ("gzip", "x-gzip", "deflate"):
        try:
            yield from _inflated(response.iter_raw())
        except zlib.error as error:
            raise UrlUnreachable("The host's answer breaks off, or its coding is broken.") from error
    else:
        raise UrlNotAnImage("The answer is in a content coding that was not asked for.")


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(_GZIP_OR_ZLIB)
    for chunk in chunks:
        rest = chunk
        while rest and not inflater.eof:
            yield inflater.decompress(rest, CHUNK_BYTES)
            rest = inflater.unconsumed_tail
    while not inflater.eof:
        # What is left inside comes out without further input, until nothing does.
        left = inflater.decompress(inflater.unconsumed_tail, CHUNK_BYTES)
        if not left:
            raise zlib.error("it ends in the middle")
        yield left
