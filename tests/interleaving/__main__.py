"""python -m tests.interleaving [--long] [--start NAME] [--only VERB]: pairs of verbs at once; what they broke is named.

Exit status 1 if a promise was broken. --long: all pairs at all statements; else as many as --most, drawn by --seed.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interleaving", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--long", action="store_true", help="all of them, at each statement")
    parser.add_argument("--most", type=int, default=300, help="how many without --long")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--start", help="only where this start begins")
    parser.add_argument("--only", help="only with this verb, halted or in between")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    from tests.chaos.servers import Servers

    servers = Servers()
    try:
        from tests.chaos.__main__ import set_up

        os.environ["LOG_LEVEL"] = "CRITICAL"
        set_up()
        return _run(options)
    finally:
        servers.end()


def _run(options: argparse.Namespace) -> int:
    from tests.interleaving.pairs import Interleaver

    interleaver = Interleaver()
    began = shown = time.monotonic()
    broken: Counter[str] = Counter()
    number = waited = halted = 0
    try:
        for number, (at, of, pair) in enumerate(_pairs(interleaver, options), start=1):
            verdict = interleaver.run(pair)
            waited += verdict.waited
            halted += bool(verdict.statement)
            for problem in verdict.problems:
                if not broken[problem_of(pair)]:
                    print(f"{pair} [{verdict.statement[:90]}]\n    {problem}", flush=True)
            broken[problem_of(pair)] += bool(verdict.problems)
            if time.monotonic() - shown > 15:
                shown = time.monotonic()
                failed = sum(map(bool, broken.values()))
                print(
                    f"... combination {at} of {of}: {number} pairs in {shown - began:.0f} s, {failed} broken",
                    flush=True,
                )
    finally:
        interleaver.close()
    failed = sum(map(bool, broken.values()))
    print(
        f"{number} pairs in {time.monotonic() - began:.0f} s: {halted} halted midway, {waited} waited for a lock; "
        f"{sum(broken.values())} broke a promise, of {failed} combinations"
    )
    return 1 if failed else 0


def problem_of(pair: Any) -> str:
    return f"{pair.start}: {pair.halted}, {pair.other}"


def _pairs(interleaver: Any, options: argparse.Namespace) -> Iterator[tuple[int, int, Any]]:
    """(number of its combination, of how many, the pair)"""
    from tests.interleaving.pairs import combinations, every_gap, some_pairs

    if not options.long and not options.start and not options.only:
        pairs = some_pairs(interleaver, options.most, options.seed)
        yield from ((number, options.most, pair) for number, pair in enumerate(pairs, start=1))
        return
    wanted = [
        (start, one, two)
        for start, one, two in combinations()
        if options.start in (None, start) and options.only in (None, one, two)
    ]
    for number, one in enumerate(wanted, start=1):
        yield from ((number, len(wanted), pair) for pair in every_gap(interleaver, *one))


if __name__ == "__main__":
    sys.exit(main())
