"""API keys: made, stored as hashes, found again, and read anew when their file changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidegate import keys as keys_module
from tidegate.errors import SettingsError
from tidegate.keys import KEY_PREFIX, ApiKeys, new_key, parse_keys

HASH = "0" * 64


@pytest.fixture(autouse=True)
def at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is looked at whenever a key is asked for."""
    monkeypatch.setattr(keys_module, "LOOK_SECONDS", 0.0)


def test_a_new_key_is_known_by_the_line_that_is_stored() -> None:
    """The line tells the name and nothing of the key; and no two keys are the same."""
    made = new_key("alice")
    assert made.key.startswith(KEY_PREFIX)
    assert made.line == f"alice:{hashlib.sha256(made.key.encode()).hexdigest()}"
    assert ApiKeys(made.line).name_of(made.key) == "alice"
    assert new_key("alice").key != made.key


@pytest.mark.parametrize("key", ["", "x", KEY_PREFIX, "\udc80", "ü" * 10_000])
def test_a_wrong_key_is_nobodys(key: str) -> None:
    """Whatever it is."""
    assert ApiKeys(new_key("alice").line).name_of(key) is None


def test_a_name_may_have_several_keys() -> None:
    """That is how one is replaced without a gap; other names stay apart."""
    old, new, other = new_key("alice"), new_key("alice"), new_key("bob")
    keys = ApiKeys(f"{old.line},{new.line}, {other.line}")
    assert [keys.name_of(made.key) for made in (old, new, other)] == ["alice", "alice", "bob"]


@pytest.mark.parametrize(
    "line",
    ["alice", "alice:", f":{HASH}", "alice:secret", f"al ice:{HASH}", f"-a:{HASH}", f"{'a' * 65}:{HASH}", f"a:{HASH}0"],
)
def test_a_line_that_is_no_pair_is_refused_without_being_repeated(line: str) -> None:
    """It may be a key that somebody pasted in the wrong place."""
    with pytest.raises(SettingsError, match="API key 2 is no name:hash pair") as refusal:
        parse_keys([f"bob:{HASH}", line])
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("name", ["", "a b", ".a", "a" * 65, "a:b", "ü"])
def test_a_name_that_could_not_be_read_back_gets_no_key(name: str) -> None:
    """What is made can be stored."""
    with pytest.raises(SettingsError):
        new_key(name)


@pytest.mark.parametrize("setting", [",", "/nowhere/keys"])
def test_a_setting_without_a_key_in_it_stops_the_start(setting: str) -> None:
    """Who sets keys must not be left without any, and open to all."""
    with pytest.raises(SettingsError):
        ApiKeys(setting)


def test_no_setting_is_no_key() -> None:
    """Then there is one caller without a name."""
    assert not ApiKeys("")


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A key that is added works and one that is taken away does not, without a restart."""
    alice, bob = new_key("alice"), new_key("bob")
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n{alice.line}\n")
    keys = ApiKeys(str(file))
    assert (keys.name_of(alice.key), keys.name_of(bob.key)) == ("alice", None)
    file.write_text(f"{bob.line}\n# and nobody else\n")
    assert (keys.name_of(alice.key), keys.name_of(bob.key)) == (None, "bob")


@pytest.mark.parametrize("broken", ["half a li", "", None])
def test_a_file_that_breaks_locks_nobody_out(tmp_path: Path, broken: str | None) -> None:
    """The keys that were there go on being good, and the log says once what is wrong."""
    alice = new_key("alice")
    file = tmp_path / "keys"
    file.write_text(alice.line)
    keys = ApiKeys(str(file))
    if broken is None:
        file.unlink()
    else:
        file.write_text(broken)
    with capture_logs() as lines:
        assert [keys.name_of(alice.key) for _ in range(3)] == ["alice"] * 3
    assert [line["event"] for line in lines] == ["keys.unreadable"]
    file.write_text(f"{alice.line}\n{new_key('bob').line}\n")
    assert keys.name_of(alice.key) == "alice"
