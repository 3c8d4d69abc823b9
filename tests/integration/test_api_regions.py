"""Regions of an image over HTTP: one job classifies each box, and a bad box is a mistake that is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.integration.api_client import serving
from tests.integration.one_child import OneChild, running_child
from tests.integration.stub_triton import SIDE, stripes
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

#: 32x8: classes 3, 9, 14 and 6 from left to right.
IMAGE = stripes([3, 9, 14, 6])
BOXES = [[16, 0, 24, 8], [0, 0, 8, 8], [9, 1, 15, 7]]
FORMS: dict[str, Any] = {
    "plain": {"content": IMAGE, "params": {"regions": json.dumps(BOXES)}},
    "form": {"files": {"image": ("x.png", IMAGE)}, "data": {"regions": json.dumps(BOXES)}},
}


@pytest.fixture
async def stage(settings: Settings) -> AsyncIterator[tuple[httpx.AsyncClient, OneChild]]:
    """The API, and a pool child that has reported the stub's model."""
    with running_child(settings) as one:
        one.discover()
        async with serving(one.client.settings) as api:
            yield api, one


async def submit(api: httpx.AsyncClient, **request: Any) -> str:
    """The id of a job that is accepted."""
    answer = await api.post("/v1/jobs", **request)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def outcome(stage: tuple[httpx.AsyncClient, OneChild], job_id: str) -> dict[str, Any]:
    """The job as the API tells it once the child has run it."""
    api, one = stage
    await asyncio.to_thread(one.run, [job_id])
    answer: dict[str, Any] = (await api.get(f"/v1/jobs/{job_id}")).json()
    return answer


@pytest.mark.parametrize("form", FORMS)
async def test_each_region_is_classified_and_told_in_order(
    stage: tuple[httpx.AsyncClient, OneChild], form: str
) -> None:
    """The answer has the boxes as they were asked for, each with its own predictions, and none of the whole image."""
    job = await outcome(stage, await submit(stage[0], **FORMS[form]))
    assert job["status"] == "succeeded"
    assert job["result"]["predictions"] == []
    assert [region["box"] for region in job["result"]["regions"]] == BOXES
    assert [region["predictions"][0]["class_id"] for region in job["result"]["regions"]] == [14, 3, 9]
    assert job["batch"]["size"] == 3


async def test_boxes_are_those_of_the_upright_image(stage: tuple[httpx.AsyncClient, OneChild]) -> None:
    """A photo that lies on its side in the file is cut as it is seen; what fits only the file is told by the job."""
    with Image.open(BytesIO(IMAGE)) as upright:
        lying = upright.resize((SIDE * 40, SIDE * 10), Image.Resampling.NEAREST).transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = BytesIO()
    lying.save(file, "JPEG", quality=95, exif=exif)
    seen = {"content": file.getvalue(), "params": {"regions": "[[165, 5, 235, 75], [5, 5, 75, 75]]"}}
    stored = {"content": file.getvalue(), "params": {"regions": "[[0, 0, 80, 81]]"}}
    job = await outcome(stage, await submit(stage[0], **seen))
    assert [region["predictions"][0]["class_id"] for region in job["result"]["regions"]] == [14, 3]
    job = await outcome(stage, await submit(stage[0], **stored))
    assert (job["status"], job["error"]["code"]) == ("failed", "invalid_field")
    assert "beyond the upright image, which is 320x80" in job["error"]["message"]


@pytest.mark.parametrize(
    ("regions", "pointer", "detail"),
    [
        ([[0, 0, 8, 8], [0, 0, 33, 8]], "#/regions/1", "beyond the upright image, which is 32x8 or 8x32"),
        ([[0, 0, 32, 8], [0, 0, 8, 32]], "#/regions/1", "beyond the upright image"),
        ([[8, 0, 8, 8]], "#/regions/0", "left < right and top < bottom"),
        ([[0, 8, 8, 0]], "#/regions/0", "left < right and top < bottom"),
        ([], "#/regions", "at least 1 item"),
        ([[0, 0, 1, 1]] * 65, "#/regions", "at most 64 items"),
        ([[0, 0, 1]], "#/regions", "at least 4 items"),
        ([[0, 0, 1, "1.5"]], "#/regions", "valid integer"),
    ],
)
async def test_bad_box_is_a_field_error(
    stage: tuple[httpx.AsyncClient, OneChild], regions: list[list[int]], pointer: str, detail: str
) -> None:
    """Where the header tells the size, a box that cannot be cut out is refused at the door, by its place."""
    answer = await stage[0].post("/v1/jobs", content=IMAGE, params={"regions": json.dumps(regions)})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_field")
    (problem,) = answer.json()["errors"]
    assert problem["pointer"] == pointer
    assert detail in problem["detail"]


async def test_regions_of_too_many_pixels_are_refused(stage: tuple[httpx.AsyncClient, OneChild]) -> None:
    """A large image asked about in full over and over is work for minutes: it is refused before it is decoded."""
    file = BytesIO()
    Image.new("1", (6000, 6000)).save(file, "PNG")
    whole = json.dumps([[0, 0, 6000, 6000]] * 6)
    answer = await stage[0].post("/v1/jobs", content=file.getvalue(), params={"regions": whole})
    assert answer.json()["errors"] == [
        {"pointer": "#/regions", "detail": "They have 216000000 pixels; at most 200000000 are accepted."}
    ]
