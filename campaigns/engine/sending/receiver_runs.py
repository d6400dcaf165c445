"""Whether answers about us come from one receiving domain or concern the whole credential."""

import re
from dataclasses import dataclass, field, replace

from vendors.outcomes import NotSent
from vendors.receivers import domain_of, waiting_part

_OF_ONE = re.compile(r"\S*@\S*|\[[^\]]{0,60}\]|<[^>]{0,200}>|\d+|\b[\w-]{1,63}(\.[\w-]{1,63})+\b")


@dataclass(slots=True)
class ReceiverRun:
    """Equal answers of several receivers without an acceptance in between, over one credential of this process.

    One relay speaks through all of them: its words are the same but for addresses and numbers.
    """

    said: str = ""
    receivers: set[str] = field(default_factory=set)

    def note_refusal(self, recipient: str, outcome: NotSent) -> tuple[str, NotSent]:
        """Return the receiver and the outcome, whose scope is the credential after equal words of two receivers."""
        receiver = waiting_part(domain_of(recipient))
        said = _OF_ONE.sub("", outcome.reason)
        if said != self.said:
            self.said, self.receivers = said, set()
        self.receivers.add(receiver)
        if len(self.receivers) < 2:
            return receiver, outcome
        wait = None if outcome.pause else outcome.retry_after
        return receiver, replace(outcome, scope="credential", retry_after=wait)

    def note_acceptance(self) -> None:
        """Forget the row: the credential is served."""
        if self.receivers:
            self.said, self.receivers = "", set()


class ReceiverRuns:
    """The runs of a process, by credential."""

    def __init__(self) -> None:
        self._of: dict[int, ReceiverRun] = {}

    def run_of_credential(self, credential_id: int) -> ReceiverRun:
        return self._of.setdefault(credential_id, ReceiverRun())
