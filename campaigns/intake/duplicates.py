"""Who is in the list twice, in 8 bytes a recipient."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import pairwise

from campaigns.intake.problems import RowErrors

Digest = Callable[[str], int]  # signed 64 bits


class DuplicateFinder:
    """The recipients so far, as digests in 256 heaps by their first byte, so that a heap at a time can be sorted."""

    def __init__(self, digest: Digest = hash) -> None:
        self.digest = digest
        self.heaps = [array("q") for _ in range(256)]

    def add(self, key: str) -> None:
        value = self.digest(key)
        self.heaps[value >> 56].append(value)  # -128 .. 127

    def twice(self) -> "array[int]":
        """Digests that occur more than once, in order. Each may be a duplicate or a coincidence."""
        found = array("q")
        for heap in self.heaps[128:] + self.heaps[:128]:
            found.extend(sorted({one for one, following in pairwise(sorted(heap)) if one == following}))
        return found


def report(suspects: "array[int]", recipients: Iterable[tuple[int, str]], problems: RowErrors, digest: Digest) -> None:
    """The second look: adds a problem for each recipient (row number, key) who came before.

    A suspect's first row and a second digest of it are kept, 16 bytes; coincidences are kept one by one: they are rare.
    """
    firsts, checks = array("q", bytes(8 * len(suspects))), array("q", bytes(8 * len(suspects)))
    others: dict[tuple[int, int], int] = {}
    for number, key in recipients:
        value = digest(key)
        at = bisect_left(suspects, value)
        if at == len(suspects) or suspects[at] != value:
            continue
        second = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), signed=True)
        if not firsts[at]:
            firsts[at], checks[at] = number, second
            continue
        first = firsts[at] if checks[at] == second else others.setdefault((value, second), number)
        if first != number:
            problems.add(number, f"the same recipient as in row {first}: {key}")
