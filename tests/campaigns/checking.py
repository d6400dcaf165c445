"""Prints by how many kB a process grows when it checks a file: `python -m tests.campaigns.checking ROWS`."""

import re
import sys
import tempfile
from pathlib import Path

import django


def high_water() -> int:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def main(rows: int) -> int:
    from campaigns.content import templates
    from campaigns.intake import Table, check_table

    content = templates.compile("Hello {{ name }}", "Dear {{ name }}", html=False)
    with tempfile.TemporaryFile() as file:
        file.write(b"email,name\n")
        file.writelines(b"person%d@sandbox.example,Ann\n" % number for number in range(rows))
        before = high_water()
        assert len(check_table(Table(file), "email", content)) == rows
        return high_water() - before


if __name__ == "__main__":
    django.setup()
    print(main(int(sys.argv[1])))
