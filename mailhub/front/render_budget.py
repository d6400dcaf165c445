"""What the templates of one request may cost to render, all recipients together (campaigns/content/cost.py)."""

from campaigns.content.cost import Budget, OverBudget
from mailhub.front import rate_limits
from mailhub.front.problems import Problem, error, invalid

REQUEST_STEPS = 1_000_000  # a quarter of a second
FREE = 4_000  # a millisecond, which the limit of requests bounds already
LARGEST = 16_000  # steps that are counted at a time: then others have their turn


class Allowance(Budget):
    """Steps are counted for the sponsor before they are taken, so what is refused in the middle is counted too."""

    def __init__(self, sponsor_id: int) -> None:
        self._sponsor_id = sponsor_id
        self._portion, self._drawn = FREE, 0

    def draw(self) -> int:
        if self._drawn >= REQUEST_STEPS:
            told = f"up to here the request takes more than {REQUEST_STEPS:,} steps to render: send fewer at a time"
            raise OverBudget(f"{told}, or say it with fewer rounds and smaller fields")
        portion = min(self._portion, REQUEST_STEPS - self._drawn)
        if self._drawn:
            self._count(portion)
        self._drawn += portion
        self._portion = min(2 * portion, LARGEST)
        return portion

    def _count(self, steps: int) -> None:
        try:
            rate_limits.render(self._sponsor_id, steps)
        except Problem as problem:
            raise OverBudget(problem.detail) from problem


def refused(over: OverBudget, pointer: str) -> Problem:
    """What the client is told: the request is too dear, or the sponsor has had its share of this minute."""
    if isinstance(over.__cause__, Problem):
        return over.__cause__
    return invalid([error(pointer, "budget", str(over))])
