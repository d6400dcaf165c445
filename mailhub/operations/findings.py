"""Findings about the installation itself: servers, tables, clocks. Does not read campaigns' rows."""

from collections.abc import Iterable
from typing import NamedTuple

from mailhub.diagnosis import process_health, registry
from mailhub.diagnosis.verdicts import HealthVerdict, VerdictLevel
from vendors import redis_clients


class InstallationFinding(NamedTuple):
    """A fault as a sentence, and its remedy, or empty. is_wrong: it can lose mail; otherwise it is for information."""

    sentence: str
    remedy: str = ""
    is_wrong: bool = False

    def __str__(self) -> str:
        return f"{self.sentence}. {self.remedy}" if self.remedy else self.sentence


def installation_findings() -> list[InstallationFinding]:
    """Ask the servers and the rows. Raises Django's database errors; skips Redis while it does not answer."""
    return _make_findings(registry.find_cheaply())


def wrong_findings() -> list[InstallationFinding]:
    """Find what loses mail or lets it stand still: servers' settings, a constraint that refuses messages."""
    return [one for one in installation_findings() if one.is_wrong]


def version_findings() -> list[InstallationFinding]:
    """Find processes of another version than this command; none while Redis is away, which is reported elsewhere."""
    try:
        return _make_findings(process_health.find_other_versions())
    except redis_clients.WorkerRegistryUnreachable:
        return []


def clock_findings() -> list[InstallationFinding]:
    """Find stored times that lay in the future when mailhub corrected them, within the last hour."""
    return _make_findings(process_health.look_at_stored_moments())


def _make_findings(verdicts: Iterable[HealthVerdict]) -> list[InstallationFinding]:
    return [InstallationFinding(one.seen, one.remedy, one.level is VerdictLevel.ERROR) for one in verdicts]
