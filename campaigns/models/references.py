"""The reference by which a vendor knows a message: `uuid-resend_no`. Its uuid carries the message's own number.

So what a vendor reports of a reference is found by the primary key. An index over random uuids would cost each import
a random write for every recipient. Version 8 of RFC 9562: 48 bits are the number, 72 are random; to name a message one
must know them all. A uuid of another version was made before numbers stood in them, and is not found.
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

ROWS = 2_000  # of randomness drawn at once
DIGITS = 18  # hexadecimal ones of randomness in a uuid
NUMBERS = 1 << 48
WRITTEN = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})-(0|[1-9][0-9]{0,4})")


class Reference(NamedTuple):
    """What a reference says. resend_no: how often the message had been sent again."""

    id: int
    uuid: UUID
    resend_no: int


def uuids(ids: range) -> Iterator[bytes]:
    """A new uuid for each of these messages: 32 hexadecimal digits, as PostgreSQL reads them.

    Made here, because the database takes four times as long to draw one by itself.
    """
    for first in range(ids.start, ids.stop, ROWS):
        rows = range(first, min(first + ROWS, ids.stop))
        noise = os.urandom(len(rows) * DIGITS // 2).hex().encode()
        for at, id in zip(range(0, len(noise), DIGITS), rows, strict=True):
            yield b"%012x8%b8%b" % (id % NUMBERS, noise[at : at + 3], noise[at + 3 : at + DIGITS])


def read(reference: str) -> Reference | None:
    """None: it is no reference of ours."""
    found = WRITTEN.fullmatch(reference)
    if found is None:
        return None
    uuid = UUID(found[1])
    return Reference(uuid.int >> 80, uuid, int(found[2]))
