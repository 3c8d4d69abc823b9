"""What one job in the ledger should be, by the table of states alone: the ledger's promises without its Lua."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.integration.ledger_probe import Trace
from tidegate.jobs import TRANSITIONS, Event, Priority, State


@dataclass
class Shadow:
    """See the module.

    Attributes:
        rests: it was put off, and its time has not come.
        rested: it was put off, and its time has come.
        overdue: its deadline has passed and nobody has noticed.
        lapsed: its lease has run out and nobody has noticed.
        ticketless: its ticket is gone and nobody has noticed.
        ours: it failed for a cause of ours, so it is a dead letter.
        final: what Redis held of it when it was first seen ended.
        tenant: whose it is.
        lane: which of the model's lanes it waits in, as its ticket said.
        answer_key: equal for jobs that share an answer; empty for one that shares none.
        answered: it ended as it was accepted.
    """

    model: str
    priority: Priority
    size: int
    has_deadline: bool
    state: State = State.QUEUED
    owner: str = ""
    attempts: int = 0
    suspect: bool = False
    rests: bool = False
    rested: bool = False
    overdue: bool = False
    lapsed: bool = False
    ticketless: bool = False
    ours: bool = False
    final: Trace | None = None
    tenant: str = ""
    lane: int = 0
    answer_key: str = ""
    answered: bool = False

    def meet(self, event: Event) -> bool:
        """Go where the table leads; False where it leads nowhere. Time's marks do not survive a move."""
        follows = TRANSITIONS.get((self.state, event))
        if follows is None:
            return False
        self.state = follows
        self.rests = self.rested = self.lapsed = self.ticketless = False
        if follows is not State.RUNNING:
            self.owner = ""
        return True

    def meet_in_time(self, event: Event) -> bool:
        """The same, unless its deadline has passed; then that is what it meets."""
        return self.meet(Event.EXPIRE if self.overdue else event)

    @property
    def places(self) -> set[str]:
        """The indexes where it should stand."""
        if self.state.terminal:
            return set()
        if self.state is State.RUNNING:
            place = f"running:{self.model}"
        elif self.rests or self.rested:
            place = f"deferred:{self.model}"
        else:
            place = f"queued:{self.model}:{self.priority}" + (f":{self.lane}" if self.lane else "")
        return {place, "deadlines"} if self.has_deadline else {place}

    @property
    def list(self) -> str:
        """The list of its tenant's jobs in which it should stand."""
        return f"own:{self.tenant}:{self.model}:{self.state if self.state.terminal else 'open'}"

    @property
    def keeps_image(self) -> bool:
        """Whether its image should still be there."""
        return self.ours or not self.state.terminal

    def held_by(self, owner: str) -> bool:
        """Whether this worker runs it."""
        return self.state is State.RUNNING and self.owner == owner

    def claim(self, owner: str, *, alone: bool, answers: SharedAnswers) -> str:
        """A worker asks for it; gives ``claimed``, or why it does not get it."""
        if self.state is not State.QUEUED and not self.held_by(owner):
            return self.state
        if self.overdue:
            self.meet(Event.EXPIRE)
            return self.state
        if self.suspect and not alone:
            return "suspect"
        if not self.held_by(owner) and answers.spare(self):
            return self.state if self.state.terminal else "waiting"
        if self.rests:
            return "waiting"
        self.lapsed = False
        answers.first[self.answer_key] = self
        if self.meet(Event.CLAIM):
            self.owner = owner
            self.attempts += 1
        return "claimed"

    def lose(self, max_attempts: int, *, suspect: bool) -> bool:
        """The process that ran it is gone; tells whether it is queued again."""
        if self.attempts >= max_attempts:
            self.ours = self.meet(Event.LOSE_LAST)
            return False
        self.suspect = self.suspect or suspect
        return self.meet(Event.LOSE)


@dataclass
class SharedAnswers:
    """What jobs with the same key make of it that they must have the same answer.

    Attributes:
        known: the keys to which there is an answer.
        first: by key, the job that was taken up last.
    """

    known: set[str] = field(default_factory=set)
    first: dict[str, Shadow] = field(default_factory=dict)

    def spare(self, shadow: Shadow) -> bool:
        """Whether a job need not run now: it has its answer, or the answer is on its way."""
        if not shadow.answer_key:
            return False
        if shadow.answer_key in self.known:
            return shadow.meet(Event.SUCCEED)
        first = self.first.get(shadow.answer_key)
        return first is not None and first is not shadow and first.state is State.RUNNING

    def tell(self, shadow: Shadow, others: Iterable[Shadow]) -> None:
        """A job has its answer, so all that wait for the same one have it."""
        if shadow.answer_key and shadow.state is State.SUCCEEDED:
            self.known.add(shadow.answer_key)
            for other in others:
                if other.answer_key == shadow.answer_key:
                    other.meet_in_time(Event.SUCCEED)
