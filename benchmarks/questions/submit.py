"""What accepting a job costs beside a FastAPI route that only reads the same upload and answers.

Each server is one uvicorn process, and gets the same form with the same JPEG of about 40 KB from 16 connections.
No worker runs, so that the API has its core to itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import httpx
import psutil
import redis

from benchmarks.http_client import LoadReport, multipart, post_bytes, run_load
from benchmarks.null_contract import MAX_BATCH, MODEL, null_contract
from benchmarks.pace import cpu_seconds
from benchmarks.photos import photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import WebProgram, api_program, bare_program, bench_redis, bench_settings, running, scratch
from benchmarks.script import Scale, run_script
from tidegate.catalogue import ModelEntry, ModelState, write_catalogue
from tidegate.settings import Settings

CONNECTIONS = 16
#: Many short loads in turns: a neighbour on the machine, or a disk that is busy for a second, then spoils few of them.
ROUNDS, SECONDS = 9, 1.0
#: A JPEG of about 40 KB.
SIZE = ((400, 300),)
BATCH_PATH = "/v1/jobs:batch"
BATCH_IMAGES = 32
BATCH_CONNECTIONS = 4


@dataclass(frozen=True)
class Form:
    """One way to hand images in.

    Attributes:
        images: in one request.
        good: judges an answer.
    """

    name: str
    server: WebProgram
    request: bytes
    images: int
    connections: int
    good: Callable[[int, bytes], bool]


@dataclass(frozen=True)
class Load:
    """What a load brought, and the processor time that it took the server."""

    report: LoadReport
    cpu_seconds: float


def measure(scale: Scale) -> Result:
    """Load the bare route and the API in turns."""
    (photo,) = photo_mix(SIZE, of_each=1)
    with scratch() as folder, ExitStack() as stack:
        client = stack.enter_context(bench_redis(folder / "redis"))
        settings = bench_settings(client)
        bare = stack.enter_context(running(bare_program("bare_upload", folder / "bare.log")))
        api = stack.enter_context(running(api_program(settings, folder)))
        report_model(client, settings)
        forms = _forms(bare, api, photo)
        reports: dict[str, list[Load]] = {form.name: [] for form in forms}
        for _ in range(scale.count(ROUNDS, least=3)):
            for form in forms:
                reports[form.name].append(_load(form))
                report_model(client, settings)
    series = [make(form, reports[form.name]) for make in (_rate, _cost, _latency) for form in forms]
    rates = {form.name: one.median for form, one in zip(forms, series, strict=False)}
    figures = {"submit_vs_bare": rates["single"] / rates["bare route"]}
    if "batch" in rates:
        figures["submit_batch_vs_single"] = rates["batch"] / rates["single"]
    return Result("submit", series, figures, {"image_bytes": len(photo), "batch_images": BATCH_IMAGES})


def report_model(client: redis.Redis, settings: Settings) -> None:
    """Forget every job, and say that the model is there, as a worker would."""
    client.flushall()
    contract = null_contract()
    entry = ModelEntry(
        name=MODEL,
        state=ModelState.READY,
        versions=contract.versions,
        classes=contract.classes,
        batch_limit=MAX_BATCH,
        input=contract.describe_input(),
        fingerprint=contract.fingerprint,
    )
    write_catalogue(client, settings, [entry])


def _forms(bare_server: WebProgram, api: WebProgram, photo: bytes) -> list[Form]:
    body, content_type = multipart("image", [photo])
    bare = post_bytes(bare_server.url, "/upload", body, content_type)
    single = post_bytes(api.url, "/v1/jobs", body, content_type)
    forms = [
        Form("bare route", bare_server, bare, 1, CONNECTIONS, partial(_is_bare, size=len(photo))),
        Form("single", api, single, 1, CONNECTIONS, _is_queued),
    ]
    if BATCH_PATH in httpx.get(f"{api.url}/openapi.json", timeout=10, trust_env=False).json()["paths"]:
        body, content_type = multipart("image", [photo] * BATCH_IMAGES)
        batch = post_bytes(api.url, BATCH_PATH, body, content_type)
        forms.append(Form("batch", api, batch, BATCH_IMAGES, BATCH_CONNECTIONS, _are_queued))
    return forms


def _is_bare(status: int, answer: bytes, *, size: int) -> bool:
    return status == 202 and json.loads(answer) == {"bytes": size}


def _is_queued(status: int, answer: bytes) -> bool:
    return status == 202 and json.loads(answer)["status"] == "queued"


def _are_queued(status: int, answer: bytes) -> bool:
    if status != 202:
        return False
    jobs = [item["job"] or {} for item in json.loads(answer)["jobs"]]
    return [job.get("status") for job in jobs] == ["queued"] * BATCH_IMAGES


def _load(form: Form) -> Load:
    server = [psutil.Process(form.server.pid)]
    before = cpu_seconds(server)
    report = run_load(form.server.url, form.request, connections=form.connections, seconds=SECONDS, good=form.good)
    return Load(report, cpu_seconds(server) - before)


def _rate(form: Form, loads: list[Load]) -> Series:
    rates = [load.report.rate * form.images for load in loads]
    return Series(form.name, "images/s", rates, _images(form, loads), sum(load.report.bad for load in loads))


def _cost(form: Form, loads: list[Load]) -> Series:
    costs = [load.cpu_seconds * 1e6 / max(1, _images(form, [load])) for load in loads]
    return Series(form.name, "CPU µs/image", costs, _images(form, loads))


def _latency(form: Form, loads: list[Load]) -> Series:
    latencies = [latency for load in loads for latency in load.report.latencies_ms]
    return Series(form.name, "ms/request", latencies, len(latencies))


def _images(form: Form, loads: list[Load]) -> int:
    return sum(len(load.report.latencies_ms) for load in loads) * form.images


if __name__ == "__main__":
    run_script(measure)
