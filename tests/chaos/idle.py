"""``python -m tests.chaos.idle``: a stack that nobody uses for half an hour, and then serves at the first try.

What it looks for are servers and middle boxes that end connections which are silent, or on which too much is asked.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.chaos.pictures import picture
from tests.chaos.stack import CHILDREN, Stack, running_stack

JOBS = 8 * CHILDREN
#: What gRPC says of a connection that its server has ended.
WORDS = ("GOAWAY", "too_many_pings", "ENHANCE_YOUR_CALM")


def main() -> int:
    """Wait, submit, and look at attempts and logs."""
    parser = argparse.ArgumentParser(prog="idle", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args().minutes
    # Children that look at the models now and then would keep their own channel busy.
    with running_stack(workers=1, model_poll_seconds=minutes * 60 + 60) as stack:
        answers = _classify(stack)
        time.sleep(minutes * 60)
        answers += _classify(stack)
        said = [word for word in WORDS if word in stack.workers[0].log.read_text(errors="replace")]
    at_first = sum(answer["status"] == "succeeded" and answer["attempts"] == 1 for answer in answers)
    print(f"minutes={minutes:g} jobs={len(answers)} at_the_first_try={at_first} said={said}")
    return 0 if at_first == len(answers) and not said else 1


def _classify(stack: Stack) -> list[dict[str, Any]]:
    """More jobs at once than a batch takes, so that every child has some."""
    headers = {"Content-Type": "image/png", "Prefer": "wait=20"}
    with httpx.Client(base_url=stack.api.url, timeout=30) as http, ThreadPoolExecutor(JOBS) as threads:
        answers = threads.map(lambda each: http.post("/v1/jobs", content=picture(each), headers=headers), range(JOBS))
        return [answer.json() for answer in answers]


if __name__ == "__main__":
    sys.exit(main())
