#!/usr/bin/env python
"""Django's command line, of a checkout; an installed wheel has the command `mailhub`."""

from mailhub.command import main

if __name__ == "__main__":
    main()
