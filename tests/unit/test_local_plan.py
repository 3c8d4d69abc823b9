"""Which parts a stack has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.local.options import PartName, StackOptions
from tidegate.local.parts import Part, Tier
from tidegate.local.plan import Ground, plan_parts, wanted_ports
from tidegate.local.readiness import ModelServed
from tidegate.settings import load_settings

PORTS = {"redis": 6001, "triton": 6002, "triton-http": 6003, "triton-metrics": 6004, "api": 6005, "flower": 6006}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """A stack's ground, without anything of it being made."""
    return Ground(
        settings=load_settings({}, redis_url="redis://127.0.0.1:6001/0", triton_url="127.0.0.1:6002"),
        ports=PORTS,
        model_repository=tmp_path / "models",
        data_dir=tmp_path / "data",
        backends_dir=tmp_path / "backends",
    )


def parts_by_name(ground: Ground, options: StackOptions | None = None) -> dict[str, Part]:
    """The plan, for looking parts up."""
    return {part.name: part for part in plan_parts(options or StackOptions(), ground)}


def test_plan_has_every_part_and_those_that_others_need_first(ground: Ground) -> None:
    """Redis and Triton come before the workers, and those before what a person looks at."""
    assert list(parts_by_name(ground)) == ["redis", "triton", "worker-1", "outbound", "api", "flower"]


@pytest.mark.parametrize("left_out", PartName)
def test_plan_leaves_out_what_is_unwanted(ground: Ground, left_out: PartName) -> None:
    """``--without PART`` takes that part away and no other."""
    options = StackOptions(without=frozenset({left_out}))
    missing = parts_by_name(ground).keys() - parts_by_name(ground, options).keys()
    assert missing == {"worker-1" if left_out is PartName.WORKER else str(left_out)}


def test_plan_numbers_the_workers(ground: Ground) -> None:
    """Each of several workers has a name of its own, on the stack and in Celery, and the concurrency asked for."""
    parts = parts_by_name(ground, StackOptions(workers=3, concurrency=5))
    workers = [part for name, part in parts.items() if name.startswith("worker-")]
    assert [part.name for part in workers] == ["worker-1", "worker-2", "worker-3"]
    assert all(f"{part.name}@localhost" in part.command for part in workers)
    assert all(part.command[-2:] == ("--concurrency", "5") for part in workers)


def test_plan_tells_every_part_of_ours_where_redis_and_triton_are(ground: Ground) -> None:
    """Workers, API and Flower get this stack's addresses, whatever the shell has set."""
    addresses = {"TIDEGATE_REDIS_URL": "redis://127.0.0.1:6001/0", "TIDEGATE_TRITON_URL": "127.0.0.1:6002"}
    for name in ("worker-1", "outbound", "api", "flower"):
        assert addresses.items() <= parts_by_name(ground)[name].environ.items()


def test_plan_makes_the_log_readable_where_nobody_asked_for_another_form(ground: Ground) -> None:
    """A person reads the lines in a terminal, so they are no JSON, unless that was asked for."""
    asked = replace(ground, settings=load_settings({}, log_format="json"))
    assert parts_by_name(ground)["api"].environ["TIDEGATE_LOG_FORMAT"] == "console"
    assert "TIDEGATE_LOG_FORMAT" not in parts_by_name(asked)["api"].environ


def test_plan_binds_every_listener_to_loopback_and_its_port(ground: Ground) -> None:
    """Nothing is open to the network, and each part listens where its address says."""
    listeners = {name: part for name, part in parts_by_name(ground).items() if part.address}
    assert listeners.keys() == {"redis", "triton", "api", "flower"}
    for part in listeners.values():
        line = " ".join(part.command)
        assert "127.0.0.1" in line
        assert "0.0.0.0" not in line
        assert str(part.port) in line
        assert f"127.0.0.1:{part.port}" in str(part.address)


def test_plan_opens_flower_without_a_password_on_loopback_alone(ground: Ground) -> None:
    """Its API needs no login, which is right only because its address is 127.0.0.1."""
    flower = parts_by_name(ground)["flower"]
    assert flower.environ["FLOWER_UNAUTHENTICATED_API"] == "true"
    assert "--address=127.0.0.1" in flower.command


def test_plan_stops_the_front_first_and_the_ground_last(ground: Ground) -> None:
    """A worker that drains still has its Redis and its Triton, and gets no new work."""
    tiers = {name: part.tier for name, part in parts_by_name(ground).items()}
    assert {name for name, tier in tiers.items() if tier is Tier.FRONT} == {"api", "flower"}
    assert {name for name, tier in tiers.items() if tier is Tier.GROUND} == {"redis", "triton"}
    assert Tier.FRONT < Tier.WORKERS < Tier.GROUND


def test_plan_gives_workers_longer_to_end_than_an_inference_may_take(ground: Ground) -> None:
    """A batch that has just begun is finished at the end of the stack, not killed."""
    assert parts_by_name(ground)["worker-1"].grace_seconds > ground.settings.infer_timeout_seconds


def test_plan_waits_for_a_model_only_where_a_worker_can_bring_one(ground: Ground) -> None:
    """Without a worker of ours it is enough that the API lives: one that is started later brings the models."""
    alone = parts_by_name(ground, StackOptions(without=frozenset({PartName.WORKER})))
    assert any(isinstance(probe, ModelServed) for probe in parts_by_name(ground)["api"].ready)
    assert not any(isinstance(probe, ModelServed) for probe in alone["api"].ready)


def test_wanted_ports_are_those_of_the_parts_that_run() -> None:
    """A part that is left out needs no port, so a taken one does not matter."""
    options = StackOptions(api_port=8000, without=frozenset({PartName.TRITON, PartName.FLOWER}))
    assert wanted_ports(options) == {"redis": 0, "api": 8000}
