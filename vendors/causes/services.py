"""The codes of services that only their own lists explain, such as 1 or 400: services.toml, one table a service.

A service is known by the called host, by the name that a description or an adapter gives it, or by a link in its
answer. A listed code decides over the words beside it. Causes are plain words here, because
`vendors/causes/__init__.py` needs this module.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TABLES = Path(__file__).with_name("services.toml")
CAUSES = ("recipient", "content", "us", "capacity", "vendor", "unknown")
BY_TEXT = "text"
"""Codes under this name say too little; the words beside them decide."""
LINKS_MAX, CODES_MAX = 5, 20
"""Links and codes of an answer that are read, so that a strange one takes no time."""
_LINK = re.compile(r"https?:\\?/\\?/([\w.-]+)(\S*)")  # also as JSON may write it: https:\/\/
_NUMBER_AT_END = re.compile(r"[/#=](\d{2,6})\b\W*$")
_CODE = re.compile(
    r"\b(?:error[_ ]?)?code(?:number)?['\"]?\s*(?:=>|[:=])\s*['\"]?([\w.-]{1,40})", re.IGNORECASE
)  # as "code": 21610


@dataclass(frozen=True, slots=True)
class ServiceCodes:
    """The causes of one service's codes. `others`: the cause of a refusal with any other code, or ""."""

    name: str
    answers: Mapping[str, str]
    reports: Mapping[str, str]
    by_text: frozenset[str] = frozenset()
    others: str = ""

    def leaves_to_text(self, code: str) -> bool:
        """Return True if the words decide, beside this code or without a code."""
        return not self.others or not code or _plain_code(code) in self.by_text

    def find_cause(self, *codes: str, reported: bool = False) -> str:
        """Return the cause of the first listed code; "" without one. `reported`: a delivery report has them."""
        listed = self.reports if reported else self.answers
        return next((listed[code] for one in codes if (code := _plain_code(one)) in listed), "")


def find_service(name: str = "", url: str = "") -> ServiceCodes | None:
    """Return the table of the service at this URL, else of the service with this name, else None."""
    by_name, by_host = _load_tables()
    found = _find_host(urlsplit(url).hostname or "", by_host) if url else None
    return found or by_name.get(name.strip().casefold())


def find_linked(text: str) -> str:
    """Return the cause of a code beside a link to its service, as Twilio's "more_info"; "" if the text has none."""
    _, by_host = _load_tables()
    for link in islice(_LINK.finditer(text), LINKS_MAX):
        service = _find_host(link[1], by_host)
        if service and (cause := service.find_cause(*_codes_beside(link, text))):
            return cause
    return ""


def _codes_beside(link: re.Match[str], text: str) -> list[str]:
    """Return the number at the end of a link, then the codes that the text states."""
    at_end = _NUMBER_AT_END.search(re.split(r"[\"'}\])]", link[2])[0])
    stated = [code[1] for code in islice(_CODE.finditer(text), CODES_MAX)]
    return [at_end[1], *stated] if at_end else stated


def _find_host(host: str, by_host: Mapping[str, ServiceCodes]) -> ServiceCodes | None:
    """Return the table of a host or of the nearest domain above it."""
    labels = host.casefold().split(".")
    domains = (".".join(labels[place:]) for place in range(len(labels)))
    return next((by_host[domain] for domain in domains if domain in by_host), None)


@cache
def _load_tables() -> tuple[dict[str, ServiceCodes], dict[str, ServiceCodes]]:
    """Return the tables by the names and by the hosts of their services."""
    by_name: dict[str, ServiceCodes] = {}
    by_host: dict[str, ServiceCodes] = {}
    for one in tomllib.loads(TABLES.read_text(encoding="utf-8"))["service"]:
        table = _service_table(one)
        by_name |= {name.casefold(): table for name in one["names"]}
        by_host |= {host.casefold(): table for host in one.get("hosts", ())}
    return by_name, by_host


def _service_table(one: Mapping[str, Any]) -> ServiceCodes:
    """Return a service's table. `codes` hold for answers and reports, `answers` and `reports` for one of them."""
    both = one.get("codes", {})
    answers, reports = (both, one.get("answers", {})), (both, one.get("reports", {}))
    unclear = frozenset(_plain_code(code) for rows in answers for code in rows.get(BY_TEXT, ()))
    return ServiceCodes(one["names"][0], _read_causes(*answers), _read_causes(*reports), unclear, one.get("others", ""))


def _read_causes(*tables: Mapping[str, Any]) -> dict[str, str]:
    return {_plain_code(code): cause for rows in tables for cause in CAUSES for code in rows.get(cause, ())}


def _plain_code(code: str) -> str:
    """Return a code as it is compared: without regard to capitals, and to zeros before a number."""
    text = code.strip().casefold()
    return text.lstrip("0") or text if text.isdecimal() else text
