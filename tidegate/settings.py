"""Settings, read once at the edge from ``TIDEGATE_*`` environment variables.

A process calls :func:`load_settings` when it starts and passes the frozen result down. A variable that
starts with ``TIDEGATE_`` but names no setting stops the start: a typing mistake must not become a default.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import os
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from tidegate.errors import SettingsError

PREFIX = "TIDEGATE_"

#: How a webhook secret is written, and how long it may be. Source: Standard Webhooks 1.0.0, "Signature scheme".
SECRET_PREFIX = "whsec_"  # noqa: S105 - it is what stands before one
MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Settings(BaseSettings):
    """Every knob, with its unit in its name. ``docs/settings.md`` is the same list as a table."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        # What is refused may be a secret with a typing mistake in it.
        hide_input_in_errors=True,
    )

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        pattern=r"^(redis|rediss|unix)://",
        description="Redis or Valkey, 6.2 or newer, with AOF and noeviction.",
    )
    key_prefix: str = Field(
        "tidegate:", pattern=r"^[A-Za-z0-9_.:-]{1,64}$", description="Put before every key of the ledger."
    )
    triton_url: str = Field(
        "127.0.0.1:8001",
        pattern=r"^[^/\s]+$",
        description="Triton's gRPC address: host:port, a comma list of them, or a DNS name with many addresses.",
    )
    default_model: str | None = Field(
        None, description="The model of a request that names none; unset, the only model there is."
    )
    max_image_bytes: Count = Field(10 * 1024 * 1024, description="Largest image taken, encoded.")
    max_image_pixels: Count = Field(50_000_000, description="Largest image taken, in pixels, judged by its header.")
    max_queued_jobs: Count = Field(100_000, description="Jobs of one model that may wait; more are refused with 503.")
    max_queued_bytes: Count = Field(
        2 * 1024**3, description="Bytes of images of all models that may wait; more are refused with 503."
    )
    lease_seconds: Seconds = Field(
        10.0,
        description="A running job whose worker has not been heard of for so long goes back to the queue.",
    )
    sweep_seconds: Seconds = Field(5.0, description="How often lost, deferred and expired jobs are looked for.")
    infer_timeout_seconds: Seconds = Field(
        8.0,
        ge=0.05,
        description="Deadline of one inference call to Triton, so that a hung server holds nobody.",
    )
    probe_timeout_seconds: Seconds = Field(
        2.0, description="Deadline of one readiness or configuration call to Triton."
    )
    model_poll_seconds: Seconds = Field(2.0, description="How often workers ask Triton which models it has.")
    redis_timeout_seconds: Seconds = Field(
        2.0, description="Longest wait for one answer of Redis, so that a stopped Redis is told within 3 s."
    )
    max_attempts: Count = Field(3, description="Runs of a job that may end in a death or a failure of the model.")
    result_ttl_seconds: Count = Field(3600, description="How long a finished job can still be read.")
    webhook_secret: SecretStr | None = Field(
        None,
        description="Signs webhooks: whsec_ and 24 to 64 random bytes in base64. Two, separated by a comma, sign "
        "together while receivers move from one to the other. Unset, no job can ask for a webhook.",
    )
    webhook_timeout_seconds: Seconds = Field(
        10.0, le=60, description="Longest that one attempt of a webhook may take in all, from the look-up of its host."
    )
    webhook_give_up_seconds: Count = Field(
        86_400, le=86_400, description="How long a webhook that does not get through is tried again."
    )
    fetch_timeout_seconds: Seconds = Field(
        20.0, le=300, description="Longest that fetching an image by its URL may take in all, redirects included."
    )
    outbound_host_connections: Count = Field(
        4, description="Webhooks, and likewise fetches, that go to one host at the same time; one while it fails."
    )
    outbound_host_rate: Count = Field(
        100, le=1_000_000, description="Webhooks, and likewise fetches, that begin in one second to one host."
    )
    outbound_ports: str = Field(
        "80,443",
        pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$",
        description="Ports that a client's URL may name: a comma list of ports and ranges.",
    )
    outbound_allow: str = Field(
        "",
        pattern=r"^[A-Za-z0-9_.:/*,-]*$",
        description="Hosts (name, or *.name for those below it), addresses and networks that a client's URL may lead "
        "to though they are not public: a comma list. Whoever can submit a job can then reach them.",
    )
    outbound_ca_file: str | None = Field(
        None, description="PEM file of authorities to trust beside the public ones, for hosts that a client names."
    )
    batch_limit: Count = Field(
        64, description="Most images in one call to Triton, where the model's own limit is not lower."
    )
    batch_linger_ms: int = Field(
        0,
        ge=0,
        le=10_000,
        description="How long an idle worker waits for company before it runs a batch that is not full.",
    )
    triton_shm: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Images reach Triton through shared memory: where it turns out to work, or always, or never.",
    )
    broker_transport: Literal["bulk", "stock"] = Field(
        "bulk", description="How tickets are fetched: in bulk (ours), or one by one (kombu's own transport)."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Log lines as JSON or for a terminal; auto looks whether it writes to one."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", description="Least level that is logged.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment and what the caller passes; no dotenv file is ever picked up from a working directory."""
        del settings_cls, dotenv_settings, file_secret_settings
        return init_settings, env_settings

    @field_validator("webhook_secret")
    @classmethod
    def _must_be_secrets(cls, secrets: SecretStr | None) -> SecretStr | None:
        if secrets is not None and not all(map(_is_secret, secrets.get_secret_value().split(","))):
            raise ValueError(
                f"a secret is {SECRET_PREFIX} and {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} random bytes in base64; "
                "`tidegate webhooks secret` makes one"
            )
        return secrets

    @model_validator(mode="after")
    def _must_not_contradict(self) -> Self:
        if self.sweep_seconds > self.lease_seconds:
            raise ValueError(
                "TIDEGATE_SWEEP_SECONDS must not exceed TIDEGATE_LEASE_SECONDS: "
                f"{self.sweep_seconds:g} s would leave lapsed leases of {self.lease_seconds:g} s lying about"
            )
        if self.infer_timeout_seconds > self.lease_seconds:
            raise ValueError(
                "TIDEGATE_INFER_TIMEOUT_SECONDS must not exceed TIDEGATE_LEASE_SECONDS: a call of up to "
                f"{self.infer_timeout_seconds:g} s would outlive a lease of {self.lease_seconds:g} s "
                "whenever a renewal is missed, and its jobs would run twice"
            )
        if self.redis_timeout_seconds * 2 > self.lease_seconds:
            raise ValueError(
                "TIDEGATE_LEASE_SECONDS must be at least twice TIDEGATE_REDIS_TIMEOUT_SECONDS: "
                f"one slow answer ({self.redis_timeout_seconds:g} s) would lose a lease of {self.lease_seconds:g} s"
            )
        return self


def _is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        return False
    return text.startswith(SECRET_PREFIX) and MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES


def load_settings(environ: Mapping[str, str] | None = None, **overrides: object) -> Settings:
    """Read the settings, or say in one sentence which variable stops us.

    Args:
        environ: where to look for misspelt variables; the process's environment by default.
        overrides: values that win over the environment, by field name; for tests and the embedded stack.

    Raises:
        SettingsError: a variable is unknown, out of bounds, or contradicts another.
    """
    known = {name.upper() for name in Settings.model_fields}
    for variable in environ if environ is not None else os.environ:
        setting = variable.upper().removeprefix(PREFIX)
        if variable.upper().startswith(PREFIX) and setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            raise SettingsError(f"{variable} is not a setting of Tidegate{hint}")
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        problem = error.errors()[0]
        name = PREFIX + "_".join(str(part) for part in problem["loc"]).upper() if problem["loc"] else ""
        message = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{name}: {message}" if name else message) from error
