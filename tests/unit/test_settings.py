"""Settings: what is taken, and what stops the start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from tidegate.errors import SettingsError
from tidegate.settings import PREFIX, Settings, load_settings


@pytest.fixture(autouse=True)
def _no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(variable)


def test_defaults_stand_without_any_variable() -> None:
    """A start without settings works, and its defaults do not contradict each other."""
    settings = load_settings()

    assert settings.redis_url == "redis://127.0.0.1:6379/0"
    assert settings.lease_seconds == 10.0


def test_variable_wins_over_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting is read from its TIDEGATE_ variable, in its own type."""
    monkeypatch.setenv("TIDEGATE_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("TIDEGATE_DEFAULT_MODEL", "cats")

    settings = load_settings()

    assert (settings.max_attempts, settings.default_model) == (7, "cats")


def test_caller_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the embedded stack passes stands whatever the shell says."""
    monkeypatch.setenv("TIDEGATE_MAX_ATTEMPTS", "7")

    assert load_settings(max_attempts=2).max_attempts == 2


def test_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose files pass variables on that nobody has set."""
    monkeypatch.setenv("TIDEGATE_LEASE_SECONDS", "")

    assert load_settings().lease_seconds == 10.0


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("TIDEGATE_LEASE_SECOND", "TIDEGATE_LEASE_SECONDS"),
        ("TIDEGATE_REDIS_URI", "TIDEGATE_REDIS_URL"),
        ("tidegate_max_atempts", "TIDEGATE_MAX_ATTEMPTS"),
    ],
)
def test_misspelt_variable_stops_the_start_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, variable: str, hint: str
) -> None:
    """A typing mistake must not become a default: the message names the variable and the setting that is near."""
    monkeypatch.setenv(variable, "1")

    with pytest.raises(SettingsError) as caught:
        load_settings()

    assert variable in str(caught.value)
    assert f"did you mean {hint}?" in str(caught.value)


def test_unknown_variable_without_a_near_setting_stops_the_start_too() -> None:
    """Where nothing is near, nothing is guessed."""
    with pytest.raises(SettingsError) as caught:
        load_settings({"TIDEGATE_XYZZY": "1"})

    assert str(caught.value) == "TIDEGATE_XYZZY is not a setting of Tidegate"


@pytest.mark.parametrize("variable", ["REDIS_URL", "MY_TIDEGATE_LEASE", "TIDEGATE", "CELERY_BROKER_URL"])
def test_variable_of_somebody_else_is_left_alone(variable: str) -> None:
    """Only names that begin with TIDEGATE_ are ours to judge."""
    assert load_settings({variable: "whatever"}) == load_settings({})


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_is_known_by_its_variable(name: str) -> None:
    """No setting is taken for a misspelt one, and each says in a line what it is for."""
    assert load_settings({PREFIX + name.upper(): "anything"}) == load_settings({})
    assert Settings.model_fields[name].description


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lease_seconds", "0"),
        ("lease_seconds", "-1"),
        ("lease_seconds", "inf"),
        ("sweep_seconds", "nan"),
        ("infer_timeout_seconds", "0.01"),
        ("max_attempts", "0"),
        ("max_attempts", "1.5"),
        ("max_image_bytes", "ten"),
        ("max_queued_jobs", "0"),
        ("result_ttl_seconds", "0"),
        ("batch_linger_ms", "-1"),
        ("batch_linger_ms", "10001"),
        ("redis_url", "http://127.0.0.1"),
        ("key_prefix", "tide gate:"),
        ("key_prefix", "tidegate*"),
        ("triton_url", "http://127.0.0.1:8001"),
        ("broker_transport", "carrier pigeon"),
        ("log_level", "verbose"),
    ],
)
def test_value_out_of_bounds_stops_the_start_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The message names the variable that must be changed."""
    variable = PREFIX + name.upper()
    monkeypatch.setenv(variable, value)

    with pytest.raises(SettingsError, match=f"^{variable}: "):
        load_settings()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"sweep_seconds": 11.0}, ("TIDEGATE_SWEEP_SECONDS", "TIDEGATE_LEASE_SECONDS")),
        ({"infer_timeout_seconds": 10.5}, ("TIDEGATE_INFER_TIMEOUT_SECONDS", "TIDEGATE_LEASE_SECONDS")),
        ({"redis_timeout_seconds": 5.5}, ("TIDEGATE_REDIS_TIMEOUT_SECONDS", "TIDEGATE_LEASE_SECONDS")),
    ],
)
def test_contradiction_stops_the_start_and_names_both(values: dict[str, float], named: tuple[str, str]) -> None:
    """Two settings that cannot both hold are both told, with their values."""
    with pytest.raises(SettingsError) as caught:
        load_settings({}, **values)

    message = str(caught.value)
    assert all(variable in message for variable in named)
    assert all(f"{value:g} s" in message for value in values.values())


@pytest.mark.parametrize(
    "values", [{"sweep_seconds": 10.0}, {"infer_timeout_seconds": 10.0}, {"redis_timeout_seconds": 5.0}]
)
def test_settings_that_just_agree_are_taken(values: dict[str, float]) -> None:
    """The bounds of the contradictions are themselves allowed."""
    settings = load_settings({}, **values)

    assert {name: getattr(settings, name) for name in values} == values


def test_settings_are_frozen() -> None:
    """What a process started with is what it runs with."""
    settings = load_settings({})

    with pytest.raises(ValidationError, match="frozen"):
        settings.max_attempts = 5  # type: ignore[misc]  # that it is forbidden is the point


def test_unknown_override_is_refused() -> None:
    """A caller's typing mistake stops the start like a shell's."""
    with pytest.raises(SettingsError, match="TIDEGATE_LEASE"):
        load_settings({}, lease=1)


def test_message_repeats_no_secret() -> None:
    """A password in a URL that is refused is not printed."""
    with pytest.raises(SettingsError) as caught:
        load_settings({}, redis_url="http://user:hunter2@127.0.0.1")

    assert "hunter2" not in str(caught.value)


def test_dotenv_file_of_the_working_folder_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the environment and the caller; a file that lies about changes nothing."""
    (tmp_path / ".env").write_text("TIDEGATE_MAX_ATTEMPTS=9\n")
    monkeypatch.chdir(tmp_path)

    assert load_settings().max_attempts == 3
