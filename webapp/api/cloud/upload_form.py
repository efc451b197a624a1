"""A `multipart/form-data` body with one file, read as it arrives."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from webapp.api.cloud import errors

FILE = "file"  # name of the part with the file
MAX_FIELD = 1024  # bytes of any other part
_MAX_PARTS = 20
_MAX_BOUNDARY = 70  # RFC 2046, section 5.1.1


@dataclasses.dataclass(slots=True)
class _Part:
    name: str
    filename: str
    content_type: str
    data: deque[bytes] = dataclasses.field(default_factory=deque)
    is_complete: bool = False


class UploadForm:
    """Form whose fields before the file are read before the file.

    Memory holds the fields and the part of the file that arrived with one chunk of the body.
    """

    def __init__(self, chunks: AsyncIterator[bytes], content_type: bytes) -> None:
        """Raises `GraphError` for a Content-Type that announces no such form."""
        kind, options = parse_options_header(content_type.strip())
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary or len(boundary) > _MAX_BOUNDARY:
            raise errors.missing(FILE)
        self._chunks = chunks
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._grow(self._header_name, data[start:end]),
                "on_header_value": lambda data, start, end: self._grow(self._header_value, data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": lambda data, start, end: self._parts[-1].data.append(data[start:end]),
                "on_part_end": self._end_part,
            },
        )
        self._header_name, self._header_value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[_Part] = []
        self._file: _Part | None = None
        self.fields: dict[str, str] = {}

    async def find_file(self) -> tuple[str, str]:
        """Read up to the file. Returns its Content-Type and its name, each empty if absent.

        Raises `GraphError` when there is no file.
        """
        while self._file is None:
            if not await self._read():
                raise errors.missing(FILE)
        return self._file.content_type, self._file.filename

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the file, after `find_file`. Raises `GraphError` when the form ends before the file."""
        assert self._file is not None
        while True:
            while self._file.data:
                yield self._file.data.popleft()
            if self._file.is_complete:
                return
            if not await self._read():
                raise errors.invalid("the form does not end with its boundary")

    async def finish(self) -> None:
        """Read the fields after the file."""
        while await self._read():
            pass

    async def _read(self) -> bool:
        """Read the next chunk of the body. Returns false at its end. Raises `GraphError`."""
        chunk = await anext(self._chunks, None)
        if chunk is None:
            return False
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise errors.invalid("the body is not a form of type multipart/form-data") from None
        for part in self._parts:
            if part is not self._file and sum(map(len, part.data)) > MAX_FIELD:
                raise errors.invalid(f"a field of the form has more than {MAX_FIELD} bytes")
        return True

    def _begin(self) -> None:
        if len(self._parts) >= _MAX_PARTS:
            raise errors.invalid(f"the form has more than {_MAX_PARTS} parts")
        self._headers = {}

    def _grow(self, text: bytearray, data: bytes) -> None:
        text += data

    def _end_header(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _end_headers(self) -> None:
        options = parse_options_header(self._headers.get(b"content-disposition", b""))[1]
        part = _Part(
            _text(options.get(b"name", b"")),
            _text(options.get(b"filename", b"")),
            _text(self._headers.get(b"content-type", b"")),
        )
        self._parts.append(part)
        if part.name == FILE and self._file is None:
            self._file = part

    def _end_part(self) -> None:
        part = self._parts[-1]
        part.is_complete = True
        if part is not self._file:
            self.fields[part.name] = _text(b"".join(part.data)[:MAX_FIELD])


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
