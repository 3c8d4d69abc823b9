"""The ingress and the consumer, after Ray's documentation of asynchronous inference.

Its annotations are objects and not text: Ray ships the routes to another process, where FastAPI would not find the
names.
"""

import base64
import os
import time
from typing import Any

from fastapi import FastAPI, Request
from ray import serve
from ray.serve.schema import CeleryAdapterConfig, TaskProcessorConfig
from ray.serve.task_consumer import instantiate_adapter_from_config, task_consumer, task_handler

from benchmarks.peers.null_model import MODEL_SECONDS, predict

REDIS_URL = os.environ["REDIS_URL"]
CONFIG = TaskProcessorConfig(
    queue_name="classify", adapter_config=CeleryAdapterConfig(broker_url=REDIS_URL, backend_url=REDIS_URL)
)

api = FastAPI()


@task_consumer(task_processor_config=CONFIG)
class Consumer:
    """Takes tasks from the queue."""

    @task_handler(name="classify")  # type: ignore[untyped-decorator]  # not installed where this is checked
    def classify(self, image: str) -> list[dict[str, Any]]:
        """Classify one image, given in base64."""
        time.sleep(MODEL_SECONDS)
        return predict(base64.b64decode(image))


@serve.ingress(api)
class Ingress:
    """Takes images in and tells what became of them."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._adapter = instantiate_adapter_from_config(CONFIG)

    @api.get("/ready")
    def ready(self) -> bool:
        """It answers."""
        return True

    @api.post("/submit")
    async def submit(self, request: Request) -> dict[str, str]:
        """Enqueue the image in the body."""
        image = base64.b64encode(await request.body()).decode()
        return {"id": self._adapter.enqueue_task_sync("classify", args=[image]).id}

    @api.get("/status/{task_id}")
    def status(self, task_id: str) -> dict[str, Any]:
        """How the task stands, with its result once it has one."""
        found = self._adapter.get_task_status_sync(task_id)
        return {"status": found.status, "result": found.result if found.status == "SUCCESS" else None}


def build() -> Any:
    """The application: an ingress that holds on to the consumer."""
    return serve.deployment(Ingress).bind(serve.deployment(Consumer).bind())
