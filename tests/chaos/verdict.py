"""What became of every promise: counted, and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.clients import Promise, end_of
from tests.chaos.hooks import Heard
from tests.chaos.pictures import number_in

#: How each kind of job may end. A plain job may lose its processes three times by bad luck, and then fails.
GOOD_ENDS: Mapping[str, frozenset[str]] = {
    "plain": frozenset({"succeeded", "worker_lost"}),
    "killer": frozenset({"worker_lost"}),
    "broken": frozenset({"image_corrupt"}),
    "canceled": frozenset({"canceled", "succeeded", "worker_lost"}),
    "hasty": frozenset({"expired", "succeeded", "worker_lost"}),
}


@dataclass(frozen=True)
class Verdict:
    """The last line of a run.

    Attributes:
        lost: accepted, and unknown afterwards.
        stuck: accepted, and not ended when all was quiet.
        duplicate_ends: jobs of which two different ends were seen.
        wrong_answers: ends that their job must not have: another image's answer, or another error.
        max_recovery_seconds: from the mending of a fault to the answer of a job that was submitted after it, or where
            it is about webhooks, to the next one that was taken.
        webhooks: ends that were to be told.
        webhooks_lost: those of them whose receiver never took them.
        webhooks_wrong: what the receiver was sent that it must not be: not signed, under another id than that of the
            job's one end, about a job that asked for none, or with another end than the job has.
    """

    accepted: int
    ended: int
    lost: int
    duplicate_ends: int
    wrong_answers: int
    stuck: int
    max_recovery_seconds: float
    webhooks: int
    webhooks_lost: int
    webhooks_wrong: int

    @property
    def good(self) -> bool:
        """Whether every promise was kept."""
        of_jobs = self.lost or self.duplicate_ends or self.wrong_answers or self.stuck
        return not (of_jobs or self.webhooks_lost or self.webhooks_wrong)

    def line(self) -> str:
        """As it is printed."""
        return (
            f"accepted={self.accepted} ended={self.ended} lost={self.lost} duplicate_ends={self.duplicate_ends} "
            f"wrong_answers={self.wrong_answers} stuck={self.stuck} max_recovery_s={self.max_recovery_seconds:.1f} "
            f"webhooks={self.webhooks} webhooks_lost={self.webhooks_lost} webhooks_wrong={self.webhooks_wrong}"
        )


def judge(promises: Sequence[Promise], lost: set[str], recoveries: Sequence[float], heard: Sequence[Heard]) -> Verdict:
    """Judge a run.

    Args:
        promises: every job that was accepted.
        lost: ids of those that were unknown when they were read last.
        recoveries: seconds, one a fault.
        heard: what the receiver of webhooks was sent.
    """
    ended = [promise for promise in promises if promise.ends]
    return Verdict(
        accepted=len(promises),
        ended=len(ended),
        lost=len(lost),
        duplicate_ends=sum(len(promise.ends) > 1 for promise in promises),
        wrong_answers=sum(not _is_good(promise) for promise in ended),
        stuck=len([promise for promise in promises if not promise.ends and promise.job_id not in lost]),
        max_recovery_seconds=max(recoveries, default=0.0),
        webhooks=sum(promise.webhook for promise in ended),
        webhooks_lost=len(untold(promises, heard)),
        webhooks_wrong=len(untrue(promises, heard)),
    )


def untold(promises: Sequence[Promise], heard: Sequence[Heard]) -> list[Promise]:
    """The jobs that ended, and whose receiver has not taken it yet."""
    taken = {each.event["data"]["id"] for each in heard if each.taken and each.event}
    return [promise for promise in promises if promise.webhook and promise.ends and promise.job_id not in taken]


def untrue(promises: Sequence[Promise], heard: Sequence[Heard]) -> list[Heard]:
    """What the receiver was sent that it must not be; see :class:`Verdict`."""
    by_id = {promise.job_id: promise for promise in promises}
    return [each for each in heard if not _tells_truly(each, by_id)]


def _tells_truly(heard: Heard, promises: Mapping[str, Promise]) -> bool:
    if heard.event is None:
        return False
    job = heard.event["data"]
    promise = promises.get(job["id"])
    if promise is None or not promise.webhook or promise.ends[:1] != [end_of(job)]:
        return False
    return (heard.webhook_id, heard.event["type"]) == (f"{job['id']}-{job['status']}", f"job.{job['status']}")


def count_ends(promises: Sequence[Promise]) -> Counter[tuple[str, str]]:
    """How often which kind of job came to which end."""
    return Counter((promise.kind, _end_of(promise)) for promise in promises)


def _end_of(promise: Promise) -> str:
    if not promise.ends:
        return "none"
    end = promise.ends[0]
    return str(end["error"]["code"]) if end["status"] == "failed" else str(end["status"])


def _is_good(promise: Promise) -> bool:
    end = _end_of(promise)
    if end not in GOOD_ENDS[promise.kind]:
        return False
    return end != "succeeded" or number_in(promise.ends[0]["result"]) == promise.number
