"""One run: clients submit, faults happen one after the other, all comes to rest, and a verdict is given."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.chaos.clients import Clients, Promise
from tests.chaos.faults import FAULTS, OF_WEBHOOKS
from tests.chaos.hooks import Heard
from tests.chaos.stack import Stack
from tests.chaos.verdict import Verdict, judge, untold

#: How long a job that is submitted after a fault may take, before the run itself counts as failed.
PROBE_SECONDS = 60.0
#: How long all may take to come to rest in the end.
QUIET_SECONDS = 90.0
#: How long webhooks may take then, with no pauses any more.
TOLD_SECONDS = 60.0
#: Every so many faults a killer image comes along.
KILLER_EVERY = 4


@dataclass
class Run:
    """What a run brought.

    Attributes:
        recoveries: seconds to the answer of a job submitted after a fault, by kind of fault; where the fault is about
            webhooks, to the next one that is taken.
        promises: every job that was accepted.
        heard: what the receiver of webhooks was sent.
    """

    seed: int
    verdict: Verdict
    recoveries: dict[str, list[float]]
    promises: list[Promise] = field(repr=False)
    heard: list[Heard] = field(repr=False)
    refusals: int = 0


def run_chaos(
    stack: Stack,
    *,
    seed: int,
    seconds: float,
    kinds: Sequence[str] = tuple(FAULTS),
    say: Callable[[str], None] = lambda _line: None,
) -> Run:
    """Harm a stack for a while.

    Args:
        stack: that runs.
        seed: which decides kinds, order and victims.
        seconds: after which no further fault is begun.
        kinds: of faults, see ``faults.py``.
        say: takes a line for each fault.
    """
    random = Random(seed)
    clients = Clients(stack.api.url, seed, webhook_url=stack.hooks.url)
    recoveries: dict[str, list[float]] = defaultdict(list)
    until = time.monotonic() + seconds
    with clients.submitting(), clients.http() as http:
        for count, kind in enumerate(_endless(kinds, random)):
            if count % KILLER_EVERY == 0:
                clients.submit(http, "killer")
            FAULTS[kind](stack, random)
            mended = time.monotonic()
            probe = clients.submit(http, "plain", patience_seconds=PROBE_SECONDS)
            clients.read_until_ended(probe, PROBE_SECONDS)
            if kind in OF_WEBHOOKS:
                stack.hooks.wait_for_one(mended, seconds=PROBE_SECONDS)
            recoveries[kind].append(time.monotonic() - mended)
            say(f"{kind}: answering again after {recoveries[kind][-1]:.1f} s")
            if time.monotonic() > until:
                break
    stack.hooks.behave()
    lost = _come_to_rest(clients)
    _hear_the_last(stack, clients)
    spans = [seconds for some in recoveries.values() for seconds in some]
    verdict = judge(clients.promises, lost, spans, stack.hooks.heard)
    return Run(seed, verdict, dict(recoveries), clients.promises, stack.hooks.heard, clients.refusals)


def _endless(kinds: Sequence[str], random: Random) -> Iterator[str]:
    """All kinds in one order, then all in another, and so on."""
    while True:
        yield from random.sample(kinds, len(kinds))


def _come_to_rest(clients: Clients) -> set[str]:
    """Read every job until all have ended, and then once more; gives the ids that are unknown."""
    until = time.monotonic() + QUIET_SECONDS
    lost: set[str] = set()
    with clients.http() as http:
        waiting = [promise for promise in clients.promises if not promise.ends]
        while waiting and time.monotonic() < until:
            lost |= {promise.job_id for promise in waiting if clients.read(http, promise) == 404}
            waiting = [promise for promise in waiting if not promise.ends and promise.job_id not in lost]
            time.sleep(0.2)
        for promise in clients.promises:
            if clients.read(http, promise) == 404:
                lost.add(promise.job_id)
    return lost


def _hear_the_last(stack: Stack, clients: Clients) -> None:
    """Wait until every end was told that is to be."""
    until = time.monotonic() + TOLD_SECONDS
    while untold(clients.promises, stack.hooks.heard) and time.monotonic() < until:
        stack.hasten_webhooks()
        time.sleep(1.0)
