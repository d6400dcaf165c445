"""`python -m mailhub`: the same as manage.py and the command `mailhub`."""

import sys

from mailhub.command import main

if __name__ == "__main__":
    sys.argv[0] = "mailhub"  # as the usage shows it
    main()
