"""The wait until every part is up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tidegate.local.parts import Part, PartFailed, Probe, Tier
from tidegate.local.ports import LOOPBACK, claim_ports
from tidegate.local.readiness import ModelReported, ModelServed, NodeAnswers, PageAnswers, RedisAnswers, await_ready
from tidegate.settings import load_settings


def part(name: str, *probes: Probe) -> Part:
    """A part of which only the readiness matters."""
    return Part(name=name, command=("true",), tier=Tier.FRONT, grace_seconds=1, ready=probes, advice=f"mend {name}")


def answers(*replies: str | None) -> Probe:
    """A probe that gives these answers, one after the other."""
    rest = iter(replies)
    return lambda: next(rest)


def no_pause(_seconds: float) -> None:
    """Wait for nothing."""


@contextmanager
def page(status: int, body: object = None) -> Iterator[str]:
    """A server on loopback that answers every GET alike; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
            """Say nothing."""

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_await_ready_asks_again_until_every_part_is_content() -> None:
    """A part that is not up at first holds the others up, and no longer than needed."""
    pauses: list[float] = []
    await_ready(
        [part("redis", answers(None)), part("api", answers("starting", "starting", None))],
        timeout_seconds=60,
        pause=pauses.append,
    )
    assert len(pauses) == 2


def test_await_ready_asks_a_parts_probes_in_order() -> None:
    """The second probe is not asked before the first is content."""
    await_ready([part("api", answers("no page", None), answers(None))], timeout_seconds=60, pause=no_pause)


def test_await_ready_names_the_part_that_is_late_and_what_it_lacks() -> None:
    """When the time is over, one sentence tells who is missing and why, with what to do."""
    parts = [part("redis", answers(None)), part("triton", lambda: "nothing answers")]
    with pytest.raises(PartFailed, match=r"triton was not ready within 0 s: nothing answers") as caught:
        await_ready(parts, timeout_seconds=0, pause=no_pause)
    assert (caught.value.part, caught.value.advice) == ("triton", "mend triton")


def test_await_ready_ends_as_soon_as_the_pause_says_that_the_stack_does() -> None:
    """A part that died, or a signal, ends the wait; no time-out is sat through."""

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await_ready([part("triton", lambda: "not yet")], timeout_seconds=60, pause=interrupted)


def test_page_answers_is_content_with_success_alone() -> None:
    """An error status and a closed port both say what is wrong."""
    with page(200) as url:
        assert PageAnswers(url)() is None
    with page(503) as url:
        assert PageAnswers(url)() == f"{url} answers 503"
    assert "does not answer" in str(PageAnswers(url)())


def test_model_served_wants_a_model_that_is_ready() -> None:
    """A list of broken models is no readiness, and its reasons are passed on."""
    broken = {"name": "densenet_onnx", "state": "broken", "reason": "its file is missing"}
    with page(200, {"models": [broken]}) as url:
        assert "densenet_onnx is broken: its file is missing" in str(ModelServed(url)())
    with page(200, {"models": [broken, {"name": "efficientnet_lite0", "state": "ready", "reason": None}]}) as url:
        assert ModelServed(url)() is None


def unreachable_redis() -> str:
    """The address of a Redis that is not there."""
    return f"redis://{LOOPBACK}:{claim_ports({'redis': 0})['redis']}/0"


@pytest.mark.parametrize(
    "probe_of",
    [
        lambda url: RedisAnswers(load_settings({}, redis_url=url)),
        lambda url: ModelReported(load_settings({}, redis_url=url)),
        lambda url: NodeAnswers(url, "worker-1@localhost"),
    ],
    ids=["redis", "catalogue", "node"],
)
def test_probes_over_redis_say_what_is_wrong_while_there_is_none(probe_of: Callable[[str], Probe]) -> None:
    """A Redis that is not up yet is an answer, not an error."""
    assert probe_of(unreachable_redis())()
