"""Signs forbidden in a text, in one table, with the place that refuses or removes each kind."""

import re

C0 = "\x00-\x1f\x7f"  # of ASCII, with NUL, tab and line ends
C1 = "\x80-\x9f"
_BLANKS_OF_C0 = "\t\n"  # a blank may stand for a tab, and a line break has a sentence of its own
SEPARATORS = "\u2028\u2029"

IN_HEADERS = re.compile(f"[{C0}]")
"""What no header of a mail may have (RFC 5322, 2.2)."""
IN_SUBJECTS = re.compile(f"(?![{_BLANKS_OF_C0}])[{C0}]")
"""What no subject of a template may have."""
IN_REFERENCES = re.compile(f"[{C0}{C1}{SEPARATORS}]")
"""What no reference of a program may have, line ends among them."""
MEANINGLESS = re.compile("[\x01-\x08\x0e-\x1f\x7f\ufeff\u200b\u2060\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]")
"""What is removed from texts that come in: controls without a meaning, marks of byte order, and layout orders that
would turn the rest of a letter around. Joiners and soft hyphens stay: they belong to words of Hindi, Persian or German,
and to emoji. NUL stays, as readers of spreadsheets mark errors with it and checks refuse it."""
LINE_BREAKS = re.compile(f"\r\n|[\r\v\f\x85{SEPARATORS}]")
"""What becomes a line feed in texts that come in."""
