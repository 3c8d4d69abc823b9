"""The least that a FastAPI service can do with an upload: read it and answer."""

from __future__ import annotations

from fastapi import FastAPI, UploadFile


def create_app() -> FastAPI:
    """One route."""
    app = FastAPI()

    @app.post("/upload", status_code=202)
    async def upload(image: UploadFile) -> dict[str, int]:
        """Read the image and tell its size."""
        return {"bytes": len(await image.read())}

    return app
