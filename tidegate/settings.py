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
from pydantic_settings import SettingsError as UnreadableSetting

from tidegate.declarations import ModelDeclaration
from tidegate.errors import SettingsError

PREFIX = "TIDEGATE_"
#: Variables of the command line as a client of the API, which are none of the server's.
CLIENT_PREFIX = f"{PREFIX}CLIENT_"

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
    models: Mapping[str, ModelDeclaration] = Field(
        default_factory=dict,
        description="What the server does not tell of its models, as JSON by name: docs/models.md. Triton needs none.",
    )
    version_wait_seconds: Seconds = Field(
        20.0, description="How long a job that names a version waits for it to be served, before it fails."
    )
    max_image_bytes: Count = Field(10 * 1024 * 1024, description="Largest image taken, encoded.")
    max_image_pixels: Count = Field(50_000_000, description="Largest image taken, in pixels, judged by its header.")
    max_queued_jobs: Count = Field(100_000, description="Jobs of one model that may wait; more are refused with 503.")
    max_all_jobs: Count = Field(
        500_000, description="Jobs of all models that may be open, waiting or running; more are refused with 503."
    )
    max_model_bytes: Count = Field(
        2 * 1024**3, description="Bytes of images of one model that may be open; more are refused with 503."
    )
    max_queued_bytes: Count = Field(
        2 * 1024**3, description="Bytes of images of all models that may be open; more are refused with 503."
    )
    api_keys: str = Field(
        "",
        pattern=r"^[^\x00-\x1f\x7f]*$",
        description="Who may use the API: name:hash pairs as `tidegate keys new` prints them, separated by commas; or "
        "the absolute path of a file of such lines, read again when it changes. Unset, the API serves loopback only.",
    )
    open_access: bool = Field(
        False, description="Without API keys, serve whoever reaches the API, not only this machine."
    )
    key_requests: int = Field(0, ge=0, description="Requests of one key in a window of time; 0: any number.")
    key_window_seconds: Count = Field(60, le=86_400, description="That window.")
    key_open_jobs: int = Field(
        0,
        ge=0,
        description="Jobs of one key that may be open, waiting or running; more are refused with 429; 0: any number.",
    )
    result_cache_seconds: int = Field(
        0,
        ge=0,
        le=604_800,
        description="How long an answer stands for the same image, model and options of the same key; 0: never.",
    )
    max_batch_bytes: Count = Field(64 * 1024**2, description="Largest body with many images in it.")
    max_upload_bytes: Count = Field(
        256 * 1024**2, description="Bytes of bodies that one API process has in hand; more are refused with 503."
    )
    upload_timeout_seconds: Seconds = Field(60.0, description="Longest that the body of a request may take to arrive.")
    lease_seconds: Seconds = Field(
        10.0,
        description="A running job whose worker has not been heard of for so long goes back to the queue.",
    )
    sweep_seconds: Seconds = Field(
        5.0,
        description="How long a waiting job's ticket may be out of its queue before the job is given another; all else "
        "that is due is looked for every second, or so often where that is less.",
    )
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
    drain_seconds: Seconds = Field(
        15.0,
        description="How long a worker that was told to stop lets its batches run on; a second signal ends that.",
    )
    api_drain_seconds: float = Field(
        2.0,
        ge=0,
        allow_inf_nan=False,
        description="How long the API serves on after SIGTERM, not ready any more, so that load balancers can tell.",
    )
    child_max_calls: Count = Field(
        10_000, description="Batches and looks at the models after which a worker's child is replaced by a fresh one."
    )
    child_max_memory_bytes: Count = Field(
        2 * 1024**3, description="Most memory that a worker's child may have had at its peak before it is replaced."
    )
    max_attempts: Count = Field(3, description="Runs of a job that may end in a death or a failure of the model.")
    result_ttl_seconds: Count = Field(3600, description="How long a finished job can still be read.")
    dead_letter_ttl_seconds: int = Field(
        86_400,
        ge=0,
        description="How long a job that failed for a cause of ours can be run again, its image being kept; 0: never.",
    )
    max_dead_letter_bytes: int = Field(
        256 * 1024**2, ge=0, description="Bytes of images of such jobs; beyond it their images go at once."
    )
    webhook_secret: SecretStr | None = Field(
        None,
        description="Signs webhooks: whsec_ and 24 to 64 random bytes in base64. Two, separated by a comma, sign "
        "together while receivers move from one to the other. Unset, no job can ask for a webhook.",
    )
    webhook_secrets_by_client: SecretStr | None = Field(
        None,
        description="Clients with secrets of their own, by the names of their API keys: name=whsec_..., more than one "
        "secret separated by commas, and clients by semicolons. Others have the one above.",
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
        4, description="Webhooks, and likewise fetches, that go to one host at the same time; one until it works."
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
    max_call_bytes: Count = Field(
        64 * 1024**2,
        le=2**31 - 2**20,
        description="Most bytes of images in one call to Triton; a batch of large inputs goes in several calls.",
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

    @field_validator("webhook_secrets_by_client")
    @classmethod
    def _must_be_secrets_by_name(cls, secrets: SecretStr | None) -> SecretStr | None:
        for entry in secrets.get_secret_value().split(";") if secrets else ():
            name, _, own = entry.partition("=")
            if not name or not all(map(_is_secret, own.split(","))):
                raise ValueError(f"it is name={SECRET_PREFIX}..., and so on, separated by semicolons")
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
        if self.max_image_bytes > self.max_call_bytes:
            raise ValueError(
                "TIDEGATE_MAX_IMAGE_BYTES must not exceed TIDEGATE_MAX_CALL_BYTES: a model that decodes images itself "
                f"could not be sent one of {self.max_image_bytes} bytes in a call of {self.max_call_bytes}"
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
        if variable.upper().startswith(CLIENT_PREFIX):
            continue
        if variable.upper().startswith(PREFIX) and setting not in known:
            near = difflib.get_close_matches(setting, known, n=1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            raise SettingsError(f"{variable} is not a setting of Tidegate{hint}")
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        problem = error.errors()[0]
        field, *steps = problem["loc"] or ("",)
        where = [f"{PREFIX}{field}".upper() if field else "", ".".join(map(str, steps))]
        message = problem["msg"].removeprefix("Value error, ")
        raise SettingsError(": ".join(filter(None, [*where, message]))) from error
    except UnreadableSetting as error:
        unreadable = [f"{PREFIX}{name}".upper() for name in Settings.model_fields if f'"{name}"' in str(error)]
        raise SettingsError(f"{', '.join(unreadable)} is not JSON") from error
