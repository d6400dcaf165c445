"""Findings about the installation itself: its servers, its tables, its clocks. No row of a campaign is looked at."""

from typing import NamedTuple

from campaigns.failover import durability
from campaigns.intake import leftover_bounds
from mailhub import stored_moments


class InstallationFinding(NamedTuple):
    """A sentence, and what to do, or empty. is_wrong: it can cost mail; else it is only told."""

    sentence: str
    remedy: str = ""
    is_wrong: bool = False

    def __str__(self) -> str:
        return f"{self.sentence}. {self.remedy}" if self.remedy else self.sentence


def of_installation() -> list[InstallationFinding]:
    """Ask the servers and the rows. Raises Django's database errors; Redis is left out while it does not answer."""
    servers = [InstallationFinding(one.sentence, one.remedy, one.refused) for one in durability.weaknesses()]
    return [*servers, *of_tables(), *of_clocks()]


def of_tables() -> list[InstallationFinding]:
    """Constraints that refuse messages."""
    return [InstallationFinding(one, leftover_bounds.REMEDY, True) for one in leftover_bounds.find_leftover_bounds()]


def of_clocks() -> list[InstallationFinding]:
    """Moments that lay ahead within the hour."""
    return list(map(InstallationFinding, stored_moments.found_lately()))
