"""What one job in the ledger should be, by the table of states alone: the ledger's promises without its Lua."""

from __future__ import annotations

from dataclasses import dataclass

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
        final: what Redis held of it when it was first seen ended.
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
    final: Trace | None = None

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
            place = f"queued:{self.model}:{self.priority}"
        return {place, "deadlines"} if self.has_deadline else {place}

    def held_by(self, owner: str) -> bool:
        """Whether this worker runs it."""
        return self.state is State.RUNNING and self.owner == owner

    def claim(self, owner: str, *, alone: bool) -> str:
        """A worker asks for it; gives ``claimed``, or why it does not get it."""
        if self.state is not State.QUEUED and not self.held_by(owner):
            return self.state
        if self.overdue:
            self.meet(Event.EXPIRE)
            return self.state
        if self.rests:
            return "waiting"
        if self.suspect and not alone:
            return "suspect"
        self.lapsed = False
        if self.meet(Event.CLAIM):
            self.owner = owner
            self.attempts += 1
        return "claimed"

    def lose(self, max_attempts: int, *, suspect: bool) -> bool:
        """The process that ran it is gone; tells whether it is queued again."""
        if self.attempts >= max_attempts:
            self.meet(Event.LOSE_LAST)
            return False
        self.suspect = self.suspect or suspect
        return self.meet(Event.LOSE)
