"""The API's answers as this client reads them: strict about what it needs, open to what a newer API adds.

What is not listed here is kept all the same, as an attribute of that name. They are kept apart from the server's own
classes, since a client may be older or newer than the API that it speaks to.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())


class Prediction(_Document):
    """One class, and how sure the model is of it.

    Attributes:
        class_id: index of the class in the model's output.
        class_name: its label, where the model has labels.
        logit: the raw score, where the model gives logits.
        probability: 0 to 1, where the scores allow one.
        score: the raw score of a model that does not say what its scores are.
    """

    class_id: int
    class_name: str | None = None
    logit: float | None = None
    probability: float | None = None
    score: float | None = None


class Region(_Document):
    """What the model said of one region: ``box`` as it was asked for, and predictions, best first."""

    box: tuple[int, ...]
    predictions: tuple[Prediction, ...]


class Result(_Document):
    """What the model said.

    Attributes:
        predictions: of the whole image, best first; empty where regions were asked for.
        regions: those that were asked for, in their order; None where none were.
    """

    predictions: tuple[Prediction, ...]
    regions: tuple[Region, ...] | None = None

    @property
    def top(self) -> Prediction:
        """The best prediction.

        Raises:
            LookupError: regions were asked for, each of which has its own.
        """
        if not self.predictions:
            raise LookupError("Each region has predictions of its own; there are none of the whole image.")
        return self.predictions[0]


class JobError(_Document):
    """Why a job failed, or why its last try did while it waits for the next."""

    code: str
    message: str
    retryable: bool = False


class Timings(_Document):
    """Where the time went, in milliseconds; None for what has not happened."""

    queued_ms: float | None = None
    preprocess_ms: float | None = None
    infer_ms: float | None = None
    total_ms: float | None = None


class Batch(_Document):
    """The images that went to the model in the same call."""

    id: str
    size: int


class JobState(_Document):
    """A job as the API told of it at one moment.

    Attributes:
        status: ``queued``, ``running``, ``succeeded``, ``failed``, ``canceled`` or ``expired``.
        model_version: the version that answered, or that was asked for.
        expires_at: when the job ends unanswered; None for never.
        attempts: runs so far.
        queue_position: how many jobs of its model go before it; None when it is in no queue.
        metadata: as it was given with the image.
    """

    id: str
    status: str
    model: str
    model_version: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = None
    attempts: int = 0
    queue_position: int | None = None
    result: Result | None = None
    error: JobError | None = None
    metadata: dict[str, str] = {}
    timings: Timings = Timings()
    batch: Batch | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing can change it any more."""
        return self.finished_at is not None


class Model(_Document):
    """A model that jobs can be given to.

    Attributes:
        state: ``ready``; ``unavailable``, and its jobs wait; or ``broken``.
        reason: why it is not ready.
        versions: those that are served, oldest first.
        classes: how many classes it tells apart.
        batch_limit: most images in one call.
        input: its input tensor in words.
    """

    name: str
    state: str
    reason: str | None = None
    versions: tuple[str, ...] = ()
    classes: int = 0
    batch_limit: int = 0
    input: str = ""


class ModelList(_Document):
    """All models, by name."""

    models: tuple[Model, ...]


class JobPage(_Document):
    """Some jobs of a list; ``next`` is where the rest of it begins, None on the last page."""

    jobs: tuple[JobState, ...]
    next: str | None = None


class JobLookup(_Document):
    """Jobs that were asked for by their ids; ``missing`` are the ids of which there are none."""

    jobs: tuple[JobState, ...]
    missing: tuple[str, ...] = ()


class FieldProblem(_Document):
    """What is wrong with one field; ``pointer`` is its JSON pointer."""

    detail: str
    pointer: str = "#"


class Problem(_Document):
    """Why a request, or one image of many, was refused. Source: RFC 9457, and ``code`` is the API's own."""

    code: str
    title: str = ""
    detail: str = ""
    status: int = 500
    errors: tuple[FieldProblem, ...] | None = None


class SubmittedImage(_Document):
    """What became of one image of many: its job, or why there is none."""

    job: JobState | None = None
    problem: Problem | None = None


class SubmittedBatch(_Document):
    """What became of many images, in their order."""

    jobs: tuple[SubmittedImage, ...]
