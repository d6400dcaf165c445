"""Prints by how many kB a process grows when it checks a list: `python -m tests.campaigns.checking ROWS`, or a file."""

import re
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import django


def high_water() -> int:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def main(given: str) -> int:
    if not given.isdigit():
        with Path(given).open("rb") as file:
            return grown(file)
    with tempfile.TemporaryFile() as file:
        file.write(b"email,name\n")
        file.writelines(b"person%d@sandbox.example,Ann\n" % number for number in range(int(given)))
        return grown(file)


def grown(file: BinaryIO) -> int:
    from campaigns.lists.intake import Table, check_table
    from campaigns.texts import templates

    content = templates.compile_templates("Hello {{ name }}", "Dear {{ name }}", html=False)
    before = high_water()
    assert len(check_table(Table(file), "email", content)) > 1_000
    return high_water() - before


if __name__ == "__main__":
    django.setup()
    print(main(sys.argv[1]))
