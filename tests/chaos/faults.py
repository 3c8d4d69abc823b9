"""The faults, by name. Each is a function that does the harm and mends it, as far as anybody would."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import psutil

from tests.chaos.stack import Stack

#: How long something stays frozen or away, in seconds: longer than time-outs, and for Redis about half a lease.
AWAY_SECONDS = 4.0

Fault = Callable[[Stack, Random], None]


def kill_child(stack: Stack, random: Random) -> None:
    """A pool child is killed."""
    children = random.choice(stack.workers).children()
    if children:
        _kill(random.choice(children))


def kill_worker(stack: Stack, random: Random) -> None:
    """A whole worker is killed, and another starts in its place."""
    worker = random.choice(stack.workers)
    worker.kill_tree()
    worker.start()


def restart_worker(stack: Stack, random: Random) -> None:
    """A worker is restarted as a deployment does it."""
    worker = random.choice(stack.workers)
    worker.stop()
    worker.start()


def kill_redis(stack: Stack, _random: Random) -> None:
    """Redis is killed, and started again."""
    stack.redis.kill()
    stack.redis.start()


def restart_redis(stack: Stack, _random: Random) -> None:
    """Redis is stopped, is away for a while, and is started again."""
    stack.redis.stop()
    time.sleep(AWAY_SECONDS)
    stack.redis.start()


def pause_redis(stack: Stack, _random: Random) -> None:
    """Redis freezes for a while."""
    stack.redis.pause()
    time.sleep(AWAY_SECONDS)
    stack.redis.resume()


def kill_triton(stack: Stack, _random: Random) -> None:
    """Triton is killed, and started again."""
    stack.triton.kill()
    stack.triton.start()


def restart_triton(stack: Stack, _random: Random) -> None:
    """Triton is restarted in order."""
    stack.triton.stop()
    stack.triton.start()


def pause_triton(stack: Stack, _random: Random) -> None:
    """Triton freezes for longer than a call may take."""
    stack.triton.pause()
    time.sleep(stack.settings.infer_timeout_seconds + AWAY_SECONDS)
    stack.triton.resume()


def unload_model(stack: Stack, _random: Random) -> None:
    """The model is unloaded, and loaded again after a while."""
    stack.unload_model()
    time.sleep(AWAY_SECONDS)
    stack.load_model()


def kill_api(stack: Stack, _random: Random) -> None:
    """The API is killed, and started again."""
    stack.api.kill()
    stack.api.start()


def restart_api(stack: Stack, _random: Random) -> None:
    """The API is restarted as a deployment does it."""
    stack.api.stop()
    stack.api.start()


def kill_outbound(stack: Stack, _random: Random) -> None:
    """The worker that sends webhooks is killed, and another starts in its place."""
    stack.outbound.kill_tree()
    stack.outbound.start()


def kill_receiver(stack: Stack, _random: Random) -> None:
    """The receiver of webhooks is killed, is away for a while, and comes back."""
    stack.hooks.kill()
    time.sleep(AWAY_SECONDS)
    stack.hooks.start()


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


#: The faults after which webhooks must come again, and not only answers.
OF_WEBHOOKS = frozenset({"sender killed", "receiver killed"})
FAULTS: dict[str, Fault] = {
    "child killed": kill_child,
    "worker killed": kill_worker,
    "worker restarted": restart_worker,
    "redis killed": kill_redis,
    "redis stopped": restart_redis,
    "redis frozen": pause_redis,
    "triton killed": kill_triton,
    "triton restarted": restart_triton,
    "triton frozen": pause_triton,
    "model unloaded": unload_model,
    "api killed": kill_api,
    "api restarted": restart_api,
    "sender killed": kill_outbound,
    "receiver killed": kill_receiver,
}
