"""A pool child's own work on a stub Triton and a real Redis, in this process: no Celery, no pool."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.integration.stub_triton import MODEL, StubTriton, running_stub
from tests.integration.workers import Client
from tidegate.catalogue import ModelEntry
from tidegate.jobs import JobRecord
from tidegate.settings import Settings
from worker.batch import BatchCall
from worker.child import Child


@dataclass
class OneChild:
    """What such a test works with."""

    stub: StubTriton
    client: Client
    child: Child

    def run(self, ids: Sequence[str]) -> list[JobRecord]:
        """Run jobs as one batch, and give them as they then stand."""
        self.child.run_batch(BatchCall(uuid.uuid4().hex, MODEL, tuple(ids), fingerprint="", alone=False))
        return [self.client.job(job_id) for job_id in ids]

    def classify(self, images: Sequence[bytes], **options: Any) -> list[JobRecord]:
        """Submit images as jobs, and run them as one batch."""
        return self.run(self.client.submit(MODEL, images, tickets=False, **options))

    def discover(self, model: str = MODEL) -> ModelEntry:
        """What the catalogue says of a model once the child has asked."""
        return self.child.discover().catalogue[model]


@contextmanager
def running_child(settings: Settings, *, stub: dict[str, Any] | None = None, **changes: Any) -> Iterator[OneChild]:
    """Set a child up while the block runs.

    Args:
        settings: those of the test, with its Redis.
        stub: fields of the stub.
        changes: settings that differ.
    """
    with running_stub(**(stub or {})) as served:
        chosen = settings.model_copy(update={"triton_url": served.url, **changes})
        with closing(Client(chosen)) as client, closing(Child(chosen)) as child:
            yield OneChild(served, client, child)
