"""From a URL to a webhook through the whole stack: fetched, classified, told."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from tests.e2e.stack_process import CHECKOUT, tidegate
from tests.integration.receiver import Reply, running_receiver
from tests.integration.workers import wait_until
from tidegate.client import verify

COFFEE = CHECKOUT / "examples" / "images" / "coffee.jpg"


def test_image_by_url_is_classified_and_its_end_is_told(tmp_path: Path) -> None:
    """The webhook is signed with the secret that the stack has made, and says what GET says."""
    status_file = tmp_path / "status.json"
    arguments = ["--api-port", "0", "--without", "flower", "--status-file", str(status_file)]
    opened = {"TIDEGATE_OUTBOUND_ALLOW": "127.0.0.1", "TIDEGATE_OUTBOUND_PORTS": "1-65535"}
    with (
        running_receiver() as host,
        running_receiver() as receiver,
        tidegate("up", *arguments, folder=tmp_path, environ=opened) as process,
    ):
        process.wait_until(status_file.exists)
        status = json.loads(status_file.read_text())
        host.default = Reply(200, {}, COFFEE.read_bytes())
        with httpx.Client(base_url=status["parts"]["api"]["url"], trust_env=False) as api:
            body = {"image_url": f"{host.url}/coffee.jpg", "webhook_url": f"{receiver.url}/hook", "top_k": 1}
            accepted = api.post("/v1/jobs", json=body)
            assert accepted.status_code == 202
            wait_until(lambda: receiver.received, seconds=60)
            job = api.get(accepted.headers["location"]).json()
            told = api.get(f"{accepted.headers['location']}/deliveries").json()["deliveries"]
    (request,) = receiver.received
    event = verify(request.body, request.headers, status["environment"]["TIDEGATE_WEBHOOK_SECRET"])
    assert event["data"] == job
    assert job["result"]["predictions"][0]["class_name"] == "espresso"
    assert [delivery["id"] for delivery in told] == [request.headers["webhook-id"]]
