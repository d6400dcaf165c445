"""German, with a 24-hour clock. Numbers are written as Django does: 1.234,5."""

DATE_FORMAT = "j. M Y"
TIME_FORMAT = "H:i"
DATETIME_FORMAT = "j. M Y, H:i"
YEAR_MONTH_FORMAT = "F Y"
MONTH_DAY_FORMAT = "j. M"

# Django also looks here for formats in templates, such as |date:"j M Y, H:i T".
_DAYS = ("D j M", "j M Y", "j M")
_TIMES = ("", " H:i", " H:i:s", ", H:i", ", H:i e", ", H:i T", ", H:i:s", ", H:i:s e", ", H:i:s T")
globals().update({day + time: day.replace("j", "j.") + time for day in _DAYS for time in _TIMES})
