"""Fetches images by URL into the ledger, before their jobs can be part of a batch. One at a time in a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import structlog

from tidegate.errors import (
    OutboundError,
    StoreUnavailable,
    TidegateError,
    UrlNotAllowed,
    UrlNotAnImage,
    UrlStatus,
    UrlTimeout,
    UrlTooLarge,
    UrlTooManyRedirects,
    UrlUnreachable,
)
from tidegate.fetches import Fetch, add_piece, end_fetch, start_fetch
from tidegate.formats import ACCEPTED, HEAD_BYTES, sniff
from tidegate.ledger import Ledger
from tidegate.outbound import Door
from tidegate.outgoing import Errand
from tidegate.settings import Settings
from tidegate.tickets import TicketOffice
from worker.coding import decoded
from worker.insist import insist

log = structlog.get_logger(__name__)

#: Bytes that are written to the ledger at a time, which is about what a fetch takes of memory.
PIECE_BYTES = 256 * 1024
MAX_REDIRECTS = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: How long a fetch that the ledger has no room for waits before it is begun again.
NO_ROOM_PAUSE_MS = 5_000

HEADERS = {"user-agent": "Tidegate-Fetch/1", "accept": "image/*", "accept-encoding": "identity"}


class _NotWanted(Exception):
    """The job has ended meanwhile, or is another worker's."""


class ImageFetcher:
    """Fetches on the ports it is given; safe to use from many threads."""

    def __init__(self, ledger: Ledger, door: Door, office: TicketOffice, settings: Settings) -> None:
        self._ledger = ledger
        self._door = door
        self._office = office
        self._settings = settings

    def fetch(self, errand: Errand) -> str:
        """Fetch the image of one job; gives the state that the job is in then, or ``skipped``.

        Raises:
            StoreUnavailable: Redis does not take what came of it; the fetch begins again when its lease has run out.
        """
        fetch = self._ledger.run(start_fetch(errand, self._settings))
        if fetch is None:
            return "skipped"
        error: TidegateError | None = None
        again_ms: int | None = None
        try:
            self._copy(fetch)
        except _NotWanted:
            return "skipped"
        except StoreUnavailable:
            again_ms = NO_ROOM_PAUSE_MS
        except (OutboundError, UrlNotAllowed) as failure:
            error = failure
        return self._tell(fetch, error, again_ms)

    def _tell(self, fetch: Fetch, error: TidegateError | None, again_ms: int | None) -> str:
        works = not isinstance(error, UrlUnreachable | UrlTimeout)
        ended = insist(lambda: self._ledger.run(end_fetch(fetch, host_works=works, error=error, again_ms=again_ms)))
        log.info("image.fetched", job_id=fetch.job_id, state=ended.state, code=error.code if error else None)
        if ended.ticket is not None:
            try:
                self._office.issue([ended.ticket])
            except StoreUnavailable as unissued:
                # The sweeper issues one.
                log.warning("ticket.not_issued", count=1, error=unissued.code)
        return ended.state

    def _copy(self, fetch: Fetch) -> None:
        """Follow the URL to an image, and put that into the ledger."""
        until = time.monotonic() + self._settings.fetch_timeout_seconds
        url = self._door.rules.judge(fetch.url)
        for _ in range(MAX_REDIRECTS + 1):
            # A limit of no time at all makes the request itself say that it is over.
            left = max(0.0, until - time.monotonic())
            with self._door.request("GET", url, headers=HEADERS, limit_seconds=left) as response:
                if response.status_code not in REDIRECTS or "location" not in response.headers:
                    self._store(fetch, response)
                    return
                url = self._door.rules.judge_next(url, response.headers["location"])
        raise UrlTooManyRedirects(f"The URL leads on more than {MAX_REDIRECTS} times.")

    def _store(self, fetch: Fetch, response: httpx.Response) -> None:
        if response.status_code != httpx.codes.OK:
            raise UrlStatus(f"The host answered with status {response.status_code} in place of 200.")
        offset = 0
        for piece in _pieces(_image(decoded(response), self._settings.max_image_bytes)):
            if not self._ledger.run(add_piece(fetch, offset, piece)):
                raise _NotWanted
            offset += len(piece)


def _image(chunks: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    """The same bytes, while they are those of an image that is accepted.

    Raises:
        UrlNotAnImage: the first bytes are not, or there are none.
        UrlTooLarge: there are more than ``max_bytes``.
    """
    count = 0
    head = b""
    for chunk in chunks:
        count += len(chunk)
        if count > max_bytes:
            raise UrlTooLarge(f"The image has more than the {max_bytes} bytes that are accepted.")
        if len(head) < HEAD_BYTES:
            head += chunk
            if len(head) < HEAD_BYTES:
                continue
            _must_be_an_image(head)
            yield head
        else:
            yield chunk
    if len(head) < HEAD_BYTES:
        _must_be_an_image(head)
        yield head


def _must_be_an_image(head: bytes) -> None:
    if sniff(head[:HEAD_BYTES]) is None:
        raise UrlNotAnImage(f"What the URL leads to is no image in a format that is accepted: {ACCEPTED}.")


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces that are worth a write each."""
    piece = bytearray()
    for chunk in chunks:
        piece += chunk
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
