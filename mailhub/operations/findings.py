"""Findings about the installation itself: servers, tables, clocks. Does not read campaigns' rows."""

from typing import NamedTuple

from campaigns.engine.audit import leftover_bounds
from campaigns.engine.failover import durability
from mailhub import stored_moments
from vendors.said import Said


class InstallationFinding(NamedTuple):
    """A fault as a sentence, and its remedy, or empty. is_wrong: it can lose mail; otherwise it is for information."""

    sentence: Said
    remedy: str = ""
    is_wrong: bool = False

    def __str__(self) -> str:
        return f"{self.sentence}. {self.remedy}" if self.remedy else self.sentence


def of_installation() -> list[InstallationFinding]:
    """Ask the servers and the rows. Raises Django's database errors; skips Redis while it does not answer."""
    servers = [InstallationFinding(one.sentence, one.remedy, one.refused) for one in durability.weaknesses()]
    return [*servers, *of_tables(), *of_clocks()]


def of_tables() -> list[InstallationFinding]:
    """Find constraints that refuse messages."""
    return [InstallationFinding(one, leftover_bounds.REMEDY, True) for one in leftover_bounds.find_leftover_bounds()]


def of_clocks() -> list[InstallationFinding]:
    """Find stored times that lay in the future when mailhub corrected them, within the last hour."""
    return list(map(InstallationFinding, stored_moments.found_lately()))
