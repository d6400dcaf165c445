"""Compatibility of programs with the data of a home's Redis.

A mark beside the data names the program that opened it last, like PostgreSQL's PG_VERSION. Without a mark, the snapshot
tells the version of the file format. Redis and Valkey share the formats up to 11; later ones differ.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

MARK = "MADE_BY"
SHARED = 11  # the last format that Redis (7.2) and Valkey (before 9) have in common
# By Redis version: the newest format readable. Valkey reads the shared ones, and from 9 on its own.
FORMATS = (((8, 4), 13), ((7, 4), 12), ((7, 2), 11), ((7, 0), 10), ((0, 0), 9))
HEADER = re.compile(rb"(REDIS|VALKEY)(\d{4}|\d{3})")


class RedisVersion(NamedTuple):
    """A program: redis or valkey, and its version."""

    product: str
    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.product.capitalize()} {self.major}.{self.minor}"

    def can_open(self, data: Path) -> bool:
        """Return True if this server may open the data: of its own product and not newer, or in a readable format."""
        made_by = read_program_mark(data)
        if made_by and made_by.product == self.product:
            return made_by <= self
        if made_by and self.product == "redis":
            return False  # a Valkey may have written what no Redis knows
        return self._can_read_format(*_newest_format(data))

    def _can_read_format(self, product: str, number: int) -> bool:
        if product == "valkey":
            return self.product == "valkey" and self.major >= 9
        if self.product == "valkey":
            return number <= SHARED
        return number <= next(newest for version, newest in FORMATS if (self.major, self.minor) >= version)


def read_program_mark(data: Path) -> RedisVersion | None:
    """Return the program that opened the data last; None without a mark."""
    try:
        product, major, minor = (data / MARK).read_text().split()
        return RedisVersion(product, int(major), int(minor))
    except (OSError, ValueError):
        return None


def set_mark(data: Path, program: RedisVersion) -> None:
    """Record the program about to open the data."""
    draft = data / f".{MARK}"
    draft.write_text(f"{program.product} {program.major} {program.minor}\n")
    draft.replace(data / MARK)


def written_by(data: Path) -> str:
    """Return the program that wrote the data, for a sentence."""
    if found := read_program_mark(data):
        return str(found)
    product, number = _newest_format(data)
    return f"a {product.capitalize()} whose format is {number}"


def put_aside(data: Path) -> Path | None:
    """Rename the data's folder. Returns its new name, or None if there is none."""
    if not data.exists():
        return None
    aside = data.with_name(f"{data.name}.aside-{datetime.now(UTC):%Y%m%d-%H%M%S}")
    data.rename(aside)
    return aside


def folders_put_aside(data: Path) -> list[Path]:
    """Return the folders put aside earlier."""
    return sorted(data.parent.glob(f"{data.name}.aside-*"))


def _newest_format(data: Path) -> tuple[str, int]:
    """Return product and number of the newest format among the loaded snapshots; ("redis", 0) if there are none."""
    found = [("redis", 0)]
    for path in [*data.glob("appendonlydir/*.rdb"), data / "appendonly.aof"]:
        try:
            with path.open("rb") as file:
                if header := HEADER.match(file.read(9)):
                    found.append((header[1].decode().lower(), int(header[2])))
        except OSError:
            continue
    return max(found, key=lambda one: (one[0] == "valkey", one[1]))
