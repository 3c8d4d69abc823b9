"""Which submissions must have the same answer, for the result cache."""

from __future__ import annotations

import hashlib

import orjson

from tidegate.catalogue import ModelEntry
from tidegate.jobs import NewJob


def answer_key(job: NewJob, model: ModelEntry, *, seconds: int) -> str:
    """Equal for jobs of one tenant with the same image, model, version and options.

    Without a version the newest is meant, so it is part of the key, as is what the model's configuration says. Tenants
    share nothing: else one could tell from a quick answer what another has sent. The key also tells the ledger for how
    many seconds the answer stands.
    """
    version = job.version or (model.versions[-1] if model.versions else "")
    options = orjson.loads(job.options_json() or b"{}")
    options.pop("metadata", None)
    asked = orjson.dumps([job.tenant, job.model, model.fingerprint, version, options], option=orjson.OPT_SORT_KEYS)
    key = hashlib.sha256(asked)
    key.update(job.image)
    return f"{seconds}:{key.hexdigest()}"


def wants_fresh(cache_control: str) -> bool:
    """Whether a ``Cache-Control`` header of a request asks for an answer of its own."""
    directives = {directive.strip().lower() for directive in cache_control.split(",")}
    return not directives.isdisjoint({"no-cache", "no-store"})
