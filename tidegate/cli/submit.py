"""``tidegate submit``: classifies files, folders and patterns of them through the API, as many as there are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tidegate.cli.address import ApiKey, ApiUrl, AsJson
from tidegate.cli.failures import FAILED, SIGNALLED, told
from tidegate.cli.images import find_images
from tidegate.cli.journal import Journal, open_journal
from tidegate.cli.progress import ImageProgress
from tidegate.cli.rows import open_csv, tell
from tidegate.cli.signals import Interruption
from tidegate.client import (
    ApiUnreachable,
    Client,
    ClientError,
    NotAuthorized,
    Options,
    Outcome,
    ThrottledError,
    UnavailableError,
)
from tidegate.client.connection import DEFAULT_URL


def submit(
    paths: Annotated[list[str], Argument(metavar="PATH", help="Images, folders of them, patterns, or URLs.")],
    *,
    model: Annotated[str | None, Option(help="The model that answers.")] = None,
    top_k: Annotated[int | None, Option(min=1, help="How many classes are named.")] = None,
    wait: Annotated[bool, Option("--wait", help="Wait for the answers, in place of telling the jobs' ids.")] = False,
    csv: Annotated[
        Path | None, Option(dir_okay=False, help="Write the answers to a file, a row a class; means --wait.")
    ] = None,
    resume: Annotated[
        Path | None,
        Option(dir_okay=False, help="Write down here what is done, and leave out what is written down already."),
    ] = None,
    concurrency: Annotated[int, Option(min=1, max=1000, help="Images under way at a time.")] = 64,
    patience: Annotated[float, Option(min=0, help="Seconds to go on while the API does not take an image.")] = 300.0,
    quiet: Annotated[bool, Option("--quiet", "-q", help="No progress bar; there is none in a pipe anyhow.")] = False,
    as_json: AsJson = False,
    api: ApiUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Hand in images to be classified, and tell what they show, or which jobs they are."""
    options = Options()
    if model is not None:
        options["model"] = model
    if top_k is not None:
        options["top_k"] = top_k
    with told(), ExitStack() as stack:
        journal = stack.enter_context(open_journal(resume, options))
        write_csv = stack.enter_context(open_csv(csv, append=resume is not None))
        progress = ImageProgress(sum(1 for _ in find_images(paths)), quiet=quiet or as_json)

        def keep(outcome: Outcome[str]) -> None:
            write_csv(outcome)
            tell(outcome, as_json=as_json)

        run = _Run(find_images(paths), options, journal, progress, keep=keep, wait=wait or csv is not None)
        client = stack.enter_context(Client(api, api_key=api_key, retry_seconds=patience))
        with progress, Interruption() as interruption:
            run.carry_out(client, interruption, concurrency=concurrency)
        if interruption.number is not None:
            _tell_interruption(progress, resume)
            raise typer.Exit(SIGNALLED + interruption.number)
        if run.stopped_by is not None:
            raise run.stopped_by
    if progress.failed:
        raise typer.Exit(FAILED)


@dataclass
class _Run:
    """All images, one run.

    Attributes:
        keep: is given every outcome, before it is written into the journal.
        wait: for the ends of the jobs.
        stopped_by: the error for which no further image is tried, since it would meet the same.
    """

    images: Iterable[str]
    options: Options
    journal: Journal
    progress: ImageProgress
    keep: Callable[[Outcome[str]], None]
    wait: bool
    stopped_by: ClientError | None = None

    def carry_out(self, client: Client, interruption: Interruption, *, concurrency: int) -> None:
        """Hand in what is not done, and see to every outcome until the last, a signal, or an error that stops all."""
        outcomes = self._outcomes(self._left(), client, concurrency)
        lost = self._see_to(outcomes, interruption, once_more=self.journal.is_kept)
        if lost:
            self._see_to(self._outcomes(lost, client, concurrency), interruption, once_more=False)

    def _outcomes(self, images: Iterable[str], client: Client, concurrency: int) -> Generator[Outcome[str], None, None]:
        # Where nothing is written down no later run can repeat a submission, and many images go in one request.
        key = self.journal.key if self.journal.is_kept else None
        classify = client.map if self.wait else client.submit_all
        return classify(images, concurrency=concurrency, idempotency_key=key, **self.options)

    def _see_to(
        self, outcomes: Generator[Outcome[str], None, None], interruption: Interruption, *, once_more: bool
    ) -> list[str]:
        """Keep the outcomes; the images whose jobs an earlier run handed in, and that are no longer kept."""
        lost = []
        with closing(outcomes):
            for outcome in interruption.steps(outcomes):
                if _is_everybodys(outcome.error):
                    self.stopped_by = outcome.error
                    return []
                if once_more and outcome.error is not None and outcome.error.code == "job_not_found":
                    self.journal.note_lost(outcome.image)
                    lost.append(outcome.image)
                else:
                    self._end(outcome)
        return lost

    def _end(self, outcome: Outcome[str]) -> None:
        self.keep(outcome)
        if outcome.job is not None or not (outcome.error and outcome.error.retryable):
            self.journal.note(outcome.image, outcome.job)
        self.progress.end(failed=outcome.error is not None)

    def _left(self) -> Iterator[str]:
        """The images that are to be done, each counted as it is taken."""
        for image in self.images:
            if self.journal.is_done(image, ended=self.wait):
                self.progress.skip()
            else:
                self.progress.begin()
                yield image


def _is_everybodys(error: ClientError | None) -> bool:
    """Whether the next image would meet the same error."""
    if error is None or error.job is not None:
        return False
    kinds = ApiUnreachable | UnavailableError | ThrottledError | NotAuthorized
    return isinstance(error, kinds) or error.code in _CODES_OF_ALL


#: Of requests that are wrong whatever the image.
_CODES_OF_ALL = frozenset({"model_not_found", "invalid_field", "invalid_request", "not_found", "method_not_allowed"})


def _tell_interruption(progress: ImageProgress, resume: Path | None) -> None:
    way_on = "the same command goes on from here" if resume else "with --resume FILE it could be gone on with"
    typer.echo(f"tidegate: interrupted with {progress.done} of {progress.total} images done; {way_on}.", err=True)
