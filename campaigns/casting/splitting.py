"""How many messages a caster cuts from the front of a parent job (document 003)."""

from fractions import Fraction


def child_size(remaining: int, minimum: int, maximum: int, percentage: float) -> int:
    """min(remaining, clamp(floor(percentage/100 * remaining), minimum, maximum)), in messages.

    The percentage is taken of what remains: 4 % of 3000 is the document's 120. It counts as it is written down, so
    that 4 % of 11,000 is 440 and never 439 by the way a float is stored. The last child may be below the minimum.
    """
    share = int(Fraction(repr(percentage)) * remaining / 100)
    return min(remaining, max(minimum, min(maximum, share)))
