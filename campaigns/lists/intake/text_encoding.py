"""Finds the encoding of a text file that is not UTF-8: UTF-16, UTF-32, or Windows' Western European CP1252.

CP1252 cannot be recognised for certain, and a wrong guess prints wrong names. So a file counts as CP1252 only if all
its non-ASCII bytes are letters of Western Europe. None may be a different letter in the encodings of Central Europe,
Turkey, Russia or a Mac. For all other files the user must name the encoding.
"""

import codecs
import re
from typing import BinaryIO

BLOCK = 1 << 20  # bytes
START = 1_000  # bytes, in which UTF-16 shows by its NULs
UTF8 = "utf-8-sig"  # with or without the byte order mark
WESTERN = "cp1252"
# Two or three bytes that form a UTF-8 character: the file is UTF-8 with some damage.
_UTF8_LETTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
_LETTERS = rb"\xc0-\xcf\xd1-\xd4\xd6\xd8-\xda\xdc\xdf-\xef\xf1-\xf4\xf6\xf8-\xfa\xfc\xff"
_SIGNS = rb"\xa0\xa7\xa9\xab\xae\xb0\xb7\xbb"  # nbsp § © « ® ° · »
_ORDINALS = rb"\xaa\xba"  # ª º, letters of other languages if a letter follows
_OTHER = re.compile(
    rb"[^\x00-\x7f" + _LETTERS + _SIGNS + _ORDINALS + rb"]"
    rb"|[" + _ORDINALS + rb"][A-Za-z" + _LETTERS + rb"]"
    rb"|[\x80-\xff]{3}"  # a word in another alphabet
)


def find_encoding(file: BinaryIO) -> str:
    """Return the encoding of a non-UTF-8 file, as Python's codecs name it; UTF8 if unknown."""
    if wide := find_wide(file):
        return wide
    return WESTERN if _is_western(file) else UTF8


def find_wide(file: BinaryIO) -> str:
    """Return the encoding of a file with more than one byte for each ASCII character, else ''."""
    file.seek(0)
    start = file.read(START)
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    low, high = start[::2], start[1::2]  # the separators of any list are ASCII, which UTF-16 fills up with NULs
    if high.count(0) > len(high) / 10 and not low.count(0):
        return "utf-16-le"
    if low.count(0) > len(low) / 10 and not high.count(0):
        return "utf-16-be"
    return ""


def _is_western(file: BinaryIO) -> bool:
    before = b""
    file.seek(0)
    while block := file.read(BLOCK):
        part = before + block
        if _UTF8_LETTER.search(part) or _OTHER.search(part):
            return False
        before = part[-2:]
    return True


def find_bad_byte(file: BinaryIO) -> tuple[int, int]:
    """Return position and value of the first invalid byte; there must be one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    while True:
        start = file.tell() - len(decoder.getstate()[0])
        block = file.read(1 << 16)
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            return start + error.start, error.object[error.start]


def known_codec(name: str) -> str:
    """Return the codec's name. Raises ValueError with a sentence if Python knows none of this name."""
    try:
        found = codecs.lookup(name)
        "".encode(found.name, "replace")
    except (LookupError, UnicodeError, ValueError):
        raise ValueError(f"{name!r} is no encoding; name one like utf-8, utf-16, cp1252 or cp1250") from None
    return UTF8 if found.name == "utf-8" else found.name
