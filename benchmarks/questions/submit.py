"""What accepting a job costs beside a FastAPI route that only reads the same upload and answers.

Each server is one uvicorn process, and gets the same form with the same JPEG of about 40 KB from 16 connections.
No worker runs, so that the API has its core to itself.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis

from benchmarks.http_client import LoadReport, multipart, post_bytes, run_load
from benchmarks.null_contract import MAX_BATCH, MODEL, null_contract
from benchmarks.photos import photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import Program, bench_redis, bench_settings, running, running_api, scratch
from benchmarks.script import Scale, run_script
from tests.integration.server_process import free_ports
from tidegate.catalogue import ModelEntry, ModelState, write_catalogue
from tidegate.settings import Settings

CONNECTIONS = 16
SECONDS = 3.0
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
    url: str
    request: bytes
    images: int
    connections: int
    good: Callable[[int, bytes], bool]


def measure(scale: Scale) -> Result:
    """Load the bare route and the API in turns."""
    (photo,) = photo_mix(SIZE, of_each=1)
    with scratch() as folder, ExitStack() as stack:
        client = stack.enter_context(bench_redis(folder / "redis"))
        settings = bench_settings(client)
        bare_url = _run_bare(stack, folder / "bare.log")
        api_url = stack.enter_context(running_api(settings, folder))
        report_model(client, settings)
        forms = _forms(bare_url, api_url, photo)
        reports: dict[str, list[LoadReport]] = {form.name: [] for form in forms}
        for _ in range(scale.rounds):
            for form in forms:
                reports[form.name].append(_load(form, scale))
                report_model(client, settings)
    series = [_series(form, reports[form.name]) for form in forms] + [
        _latency(form, reports[form.name]) for form in forms
    ]
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


def _run_bare(stack: ExitStack, log: Path) -> str:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--no-access-log",
        "--factory",
        "benchmarks.apps.bare_upload:create_app",
    ]
    program = Program(
        [*command, "--port", str(port)], log=log, environ=dict(os.environ), ready_url=f"{url}/openapi.json"
    )
    stack.enter_context(running(program))
    return url


def _forms(bare_url: str, api_url: str, photo: bytes) -> list[Form]:
    body, content_type = multipart("image", [photo])
    bare = post_bytes(bare_url, "/upload", body, content_type)
    single = post_bytes(api_url, "/v1/jobs", body, content_type)
    forms = [
        Form("bare route", bare_url, bare, 1, CONNECTIONS, lambda status, answer: _is_bare(status, answer, len(photo))),
        Form("single", api_url, single, 1, CONNECTIONS, _is_queued),
    ]
    if BATCH_PATH in httpx.get(f"{api_url}/openapi.json", timeout=10, trust_env=False).json()["paths"]:
        body, content_type = multipart("image", [photo] * BATCH_IMAGES)
        batch = post_bytes(api_url, BATCH_PATH, body, content_type)
        forms.append(Form("batch", api_url, batch, BATCH_IMAGES, BATCH_CONNECTIONS, _are_queued))
    return forms


def _is_bare(status: int, answer: bytes, size: int) -> bool:
    return status == 202 and json.loads(answer) == {"bytes": size}


def _is_queued(status: int, answer: bytes) -> bool:
    return status == 202 and json.loads(answer)["status"] == "queued"


def _are_queued(status: int, answer: bytes) -> bool:
    if status != 202:
        return False
    jobs = [item["job"] or {} for item in json.loads(answer)["jobs"]]
    return [job.get("status") for job in jobs] == ["queued"] * BATCH_IMAGES


def _load(form: Form, scale: Scale) -> LoadReport:
    seconds = scale.seconds(SECONDS, least=1)
    return run_load(form.url, form.request, connections=form.connections, seconds=seconds, good=form.good)


def _series(form: Form, reports: list[LoadReport]) -> Series:
    rates = [report.rate * form.images for report in reports]
    count = sum(len(report.latencies_ms) for report in reports) * form.images
    return Series(form.name, "images/s", rates, count, sum(report.bad for report in reports))


def _latency(form: Form, reports: list[LoadReport]) -> Series:
    latencies = [latency for report in reports for latency in report.latencies_ms]
    return Series(form.name, "ms/request", latencies, len(latencies))


if __name__ == "__main__":
    run_script(measure)
