"""A body that is too large is refused as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from fastapi import FastAPI, Request

from api.body_limit import BodyLimit
from api.body_room import BodyRoom, let_go_of_body
from api.errors import install_handlers

pytestmark = pytest.mark.anyio

LIMIT = 1000
#: Of the process, for all bodies at a time.
ROOM = 2500


@pytest.fixture
def app() -> FastAPI:
    """An application that reads whatever it is sent, and one route that does not."""
    app = FastAPI()
    app.add_middleware(BodyLimit, max_bytes=LIMIT, room=BodyRoom(ROOM), timeout_seconds=0.5)
    install_handlers(app)

    @app.post("/read")
    async def read(request: Request) -> int:
        return len(await request.body())

    @app.post("/ignore")
    async def ignore() -> str:
        return "ignored"

    return app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as client:
        yield client


async def chunks(size: int, *, of: int = 100) -> AsyncIterator[bytes]:
    """A body without a declared length."""
    for start in range(0, size, of):
        yield b"x" * min(of, size - start)


async def test_a_body_of_the_limit_passes(client: httpx.AsyncClient) -> None:
    """Declared or in chunks, exactly the limit is not too much."""
    assert (await client.post("/read", content=b"x" * LIMIT)).json() == LIMIT
    assert (await client.post("/read", content=chunks(LIMIT))).json() == LIMIT


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-length": "1"}, {"content-length": "²"}, {"content-length": "-5"}, {"content-length": "9" * 4000}],
)
async def test_a_body_over_the_limit_is_refused_whatever_it_declares(
    client: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    """Without a length, or with one that lies, what counts is what arrives."""
    raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    response = await client.post("/read", content=chunks(LIMIT + 1), headers=raw)
    assert response.status_code == 413
    assert response.json()["code"] == "image_too_large"


async def test_a_declared_length_is_refused_before_the_body_is_read(client: httpx.AsyncClient) -> None:
    """An honest client need not send what will not be taken, and may keep its connection."""
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield b"x"

    response = await client.post("/read", content=body(), headers={"content-length": str(LIMIT + 1)})
    assert not read
    assert response.status_code == 413
    assert "connection" not in response.headers


async def test_a_body_without_an_end_is_not_read_on(client: httpx.AsyncClient) -> None:
    """Once over the limit nothing more is taken, and the connection is given up."""
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while taken <= 100 * LIMIT:
            taken += 100
            yield b"x" * 100
        raise AssertionError("the body was read to its end")

    async def body() -> AsyncIterator[bytes]:
        for chunk in endless():
            yield chunk

    response = await client.post("/read", content=body())
    assert response.status_code == 413
    assert response.headers["connection"] == "close"
    assert taken <= LIMIT + 200


async def test_a_route_that_reads_nothing_refuses_nothing(client: httpx.AsyncClient) -> None:
    """The cap is on what is taken into memory, not on what a client says."""
    assert (await client.post("/ignore", content=b"x" * 2 * LIMIT)).json() == "ignored"


def pending(size: int) -> AsyncIterator[bytes]:
    """A body that begins, and then stays away."""

    async def begin() -> AsyncIterator[bytes]:
        yield b"x" * size
        await asyncio.sleep(30)

    return begin()


async def test_a_body_that_does_not_arrive_is_given_up(client: httpx.AsyncClient) -> None:
    """After its time it is refused as a problem, and the connection is to be closed."""
    response = await client.post("/read", content=pending(1))
    assert (response.status_code, response.json()["code"]) == (408, "upload_timeout")
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("body", [b"x" * LIMIT, None], ids=["declared", "in chunks"])
async def test_bodies_beyond_the_room_of_the_process_are_put_off(client: httpx.AsyncClient, body: bytes | None) -> None:
    """While others have the room a body is refused with a time to come back; when they are done it is taken."""
    slow = [asyncio.create_task(client.post("/read", content=pending(LIMIT))) for _ in range(2)]
    await asyncio.sleep(0.1)
    refused = await client.post("/read", content=body or chunks(LIMIT))
    assert (refused.status_code, refused.json()["code"]) == (503, "uploads_full")
    assert refused.headers["retry-after"] == "1"
    assert (await client.post("/read", content=b"x" * 400)).status_code == 200
    await asyncio.gather(*slow)
    assert (await client.post("/read", content=body or chunks(LIMIT))).json() == LIMIT


async def test_who_lets_go_of_its_body_gives_its_room_away(app: FastAPI, client: httpx.AsyncClient) -> None:
    """A request that waits on for something else holds nobody up."""
    hold = asyncio.Event()

    @app.post("/hold")
    async def hold_on(request: Request) -> None:
        await request.body()
        let_go_of_body(request.scope)
        await hold.wait()

    holding = [asyncio.create_task(client.post("/hold", content=b"x" * LIMIT)) for _ in range(5)]
    await asyncio.sleep(0.1)
    assert (await client.post("/read", content=b"x" * LIMIT)).json() == LIMIT
    hold.set()
    assert {response.status_code for response in await asyncio.gather(*holding)} == {200}
