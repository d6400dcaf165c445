"""Files of forms: without a name that a killed process would leave, and closed also where an upload breaks off."""

import gc
import io
import os
import warnings
import weakref
from typing import Any

import pytest
from django.http import UnreadablePostError
from django.test import RequestFactory

CONTENT = bytes(range(256)) * 12_000
EDGE = "the-edge-of-the-parts"
BEGIN = f"--{EDGE}\r\nContent-Disposition: form-data; name=f; filename=a.csv\r\n\r\n".encode()
BODY = BEGIN + CONTENT + f"\r\n--{EDGE}--\r\n".encode()
TYPE = f"multipart/form-data; boundary={EDGE}"


class Lost(io.BytesIO):
    """A body of which the last half never comes."""

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > len(BODY) // 2:
            raise ConnectionResetError
        return super().read(size)


def test_a_file_of_a_form_has_no_name_that_a_killed_process_would_leave() -> None:
    request = RequestFactory().post("/", BODY, content_type=TYPE)
    found: Any = request.FILES["f"]
    assert os.fstat(found.file.fileno()).st_nlink == 0
    assert (found.name, found.size, found.read()) == ("a.csv", len(CONTENT), CONTENT)
    request.close()


def test_the_file_of_an_upload_that_broke_off_is_closed_with_its_request() -> None:
    """Also in a circle, whose objects end in any order."""

    def break_off() -> "weakref.ref[Any]":
        request: Any = RequestFactory().post("/", BODY, content_type=TYPE)
        request.environ["wsgi.input"] = request._stream = Lost(BODY)
        with pytest.raises(UnreadablePostError):
            request.POST  # noqa: B018 (reads the body)
        circle = [request]
        circle.append(circle)
        file = request.upload_handlers[-1].file.file
        assert not file.closed
        return weakref.ref(file)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        file = break_off()
        gc.collect()
    assert (file(), said) == (None, []), "it is gone, and was not open then"
