"""`python -m sandbox.vendor`: the sandbox vendor without Django, which starts faster than the management command."""

import argparse
import sys

from sandbox.vendor.process import add_options, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandbox_vendor", description=__doc__)
    add_options(parser)
    run(vars(parser.parse_args()), announce)


def announce(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


main()
