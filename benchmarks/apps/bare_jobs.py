"""The least that a FastAPI service can do for clients that submit and poll: read an upload, answer with constants."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Response, UploadFile

#: About what a job with one prediction looks like.
JOB: dict[str, Any] = {
    "id": "01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e",
    "status": "succeeded",
    "model": "null",
    "model_version": "1",
    "created_at": "2026-01-01T00:00:00.000000Z",
    "started_at": "2026-01-01T00:00:00.001000Z",
    "finished_at": "2026-01-01T00:00:00.002000Z",
    "expires_at": None,
    "attempts": 1,
    "queue_position": None,
    "result": {"predictions": [{"class_id": 15, "class_name": None, "logit": 8.0, "probability": 0.99}]},
    "error": None,
    "metadata": {},
    "timings": {"queued_ms": 1.0, "preprocess_ms": 0.1, "infer_ms": 0.1, "total_ms": 2.0},
    "batch": {"id": "3163219cb5ef4017b73607d3a374d65f", "size": 1},
    "urls": {"get": "/jobs/01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"},
}


def create_app() -> FastAPI:
    """One route to submit, and one to ask."""
    app = FastAPI()

    @app.post("/jobs", status_code=202)
    async def submit(image: UploadFile, response: Response) -> dict[str, Any]:
        """Read the image."""
        await image.read()
        response.headers["Retry-After"] = "1"
        return {**JOB, "status": "queued"}

    @app.get("/jobs/{job_id}")
    async def get(job_id: str) -> dict[str, Any]:
        """What is always the same."""
        del job_id
        return JOB

    return app
