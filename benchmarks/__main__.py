"""``python -m benchmarks``: every question, one table, and ``benchmarks/results/summary.json``.

Each question runs in a process of its own, so that none meets another's garbage, threads or open files. One that
fails is told and counted as an error, and the others go on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from rich.console import Console

from benchmarks.environments import Environment
from benchmarks.machine import ROOT
from benchmarks.report import summary_table
from benchmarks.results import read_results
from benchmarks.summary import write_summary

QUESTIONS = (
    "drain",
    "drain_events",
    "redis_commands",
    "backlog",
    "photos_end_to_end",
    "gpu_saturation",
    "burst",
    "lone_job",
    "submit",
    "poll_load",
    "overlap",
    "transfer",
    "decoders",
)
ENVIRONMENTS = ("plain_celery", "celery_batches", "taskiq_redis", "decoders")
QUESTION_TIMEOUT_SECONDS = 300


def main() -> int:
    """Ask every question; gives how many failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of each, to try the scripts; nothing is written")
    options = ["--quick"] if parser.parse_args().quick else []
    console = Console()
    for peer in ENVIRONMENTS:
        Environment(peer).make()
    began, failed = time.monotonic(), 0
    for question in QUESTIONS:
        started = time.monotonic()
        failed += not ask(question, *options)
        console.print(f"{question}: {time.monotonic() - started:.0f} s")
    if not options:
        write_summary(failed=failed)
        console.print(summary_table(read_results()))
    console.print(f"{time.monotonic() - began:.0f} s in all, {failed} questions failed")
    return failed


def ask(question: str, *options: str) -> bool:
    """Run one question's script; False where it failed, and its output tells why."""
    try:
        subprocess.run(
            [sys.executable, "-m", f"benchmarks.questions.{question}", *options],
            cwd=ROOT,
            check=True,
            timeout=QUESTION_TIMEOUT_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{question}: {error}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
