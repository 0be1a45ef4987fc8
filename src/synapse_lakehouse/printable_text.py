r"""Escape invisible characters, and characters that change the display of other text, in text for people.

Other servers choose room IDs, user IDs, event types and state keys, and Synapse stores them unchanged. They may contain
harmful characters: a terminal executes control sequences, a direction override reorders the rest of a line, a line
break forges a log line, and chat programs act on mentions and links. All output uses one of these functions. The
escapes are those of Python (``\x1b``, ``\u202e``, ``\U000e0041``). Inside JSON, they are those of JSON.
"""

import json
import logging
import re
import sys
from collections.abc import Mapping
from typing import Any, Final
from unicodedata import category

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Unicode categories to escape: control, format, unassigned, private use, surrogate, line or paragraph separator."""
_BLANK: Final = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0))
) | frozenset(chr(code) for codes in (range(0xFE00, 0xFE0E), range(0xE0100, 0xE01F0)) for code in codes)
"""Letters and marks without a glyph. They are escaped. The variation selectors of emoji (U+FE0E, U+FE0F) are not."""
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
_ACTIVE: Final = str.maketrans({character: f"\\x{ord(character):02x}" for character in "@<>[]*`~|"})
"""Characters with which chat programs begin a mention, a link or markup."""
_FORMULA: Final = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NEW_CELL: Final = re.compile(rf";(?=[\" ]*[{re.escape(''.join(_FORMULA))}])")
"""Positions at which Excel begins a cell with a formula in countries with decimal commas."""
_HARMLESS: Final = re.compile(
    r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?|@[A-Za-z0-9._=/+-]*:[A-Za-z0-9.-]+(:\d{1,5})?|@[A-Za-z0-9._=/+-]*:\[[0-9A-Fa-f:.]+\](:\d{1,5})?"
)
"""Text that spreadsheets do not evaluate: a number, or a user ID with the characters of new user IDs."""


def is_visible(character: str) -> bool:
    """Return whether ``character`` is visible or a space, and does not change the display of its line."""
    return category(character) not in _HIDDEN and character not in _BLANK


def to_printable(text: str) -> str:
    """Return ``text`` on one line, with escapes for line breaks and invisible characters."""
    return text if text.isascii() and text.isprintable() else text.translate(_ESCAPES)


def to_printable_lines(text: str) -> str:
    """Return ``text`` like :func:`to_printable`, but keep line breaks. All line breaks must be the product's own."""
    return "\n".join(map(to_printable, text.split("\n")))


def to_printable_message(text: str) -> str:
    """Return ``text`` like :func:`to_printable_lines`, with each line except the first indented.

    So no line after a quoted line break looks like another message.
    """
    return to_printable_lines(text).replace("\n", "\n  ")


def to_printable_json(document: str) -> str:
    """Return an equal JSON document on one line, with JSON's escapes for invisible characters."""
    return document if document.isascii() and document.isprintable() else document.translate(_JSON_ESCAPES)


def to_chat_text(text: str) -> str:
    """Return ``text`` like :func:`to_printable_lines`, also with escapes for mentions, links and markup of chats."""
    return to_printable_lines(text).translate(_ACTIVE).replace("://", r":\x2f/")


def to_markdown_code(text: str) -> str:
    """Return ``text`` on one line as a Markdown code span, which is also valid in a table cell."""
    return f"`{to_printable(text).translate(_CODE)}`"


def to_spreadsheet_cell(text: str) -> str:
    """Return ``text`` like :func:`to_printable`, with an apostrophe in front if a spreadsheet would evaluate it."""
    cell = _NEW_CELL.sub(r"\\x3b", to_printable(text))
    is_formula = cell.lstrip(" ").startswith(_FORMULA) and not _HARMLESS.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


class PrintableArguments(logging.Filter):
    """Escapes the arguments of log records with :func:`to_printable`. The product's own formats need no escapes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the arguments of ``record``."""
        if isinstance(record.args, Mapping):
            record.args = {name: _argument(value) for name, value in record.args.items()}
        elif record.args:
            record.args = tuple(map(_argument, record.args))
        return True


class PrintableFormatter(logging.Formatter):
    """Formats a record as one line, followed by an indented stack trace if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return to_printable(super().formatMessage(record))

    def formatException(self, exc_info: Any) -> str:
        """Return the stack trace, indented so that none of its lines looks like another record."""
        return "\n".join(f"    {line}" for line in to_printable_lines(super().formatException(exc_info)).split("\n"))


def get_printable_logger(name: str) -> logging.Logger:
    """Return the logger ``name``, which escapes arguments for all handlers."""
    logger = logging.getLogger(name)
    logger.addFilter(PrintableArguments("printable"))
    return logger


def log_to_stderr(level: int, format: str) -> None:
    """Log to standard error with :class:`PrintableFormatter`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PrintableFormatter(format))
    logging.basicConfig(level=level, handlers=[handler])


def _argument(value: object) -> object:
    return value if isinstance(value, int | float | None) else to_printable(str(value))


def format_bytes(count: float | None) -> str:
    """Return a number of bytes with its unit, such as ``1.5 GiB``; ``-`` for None."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


class _Escapes(dict[int, str | int]):
    """Replacements by code point, computed on first use."""

    def __missing__(self, code: int) -> str | int:
        character = chr(code)
        self[code] = code if is_visible(character) else self.escape(character)
        return self[code]

    @staticmethod
    def escape(character: str) -> str:
        code = ord(character)
        form = f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
        return _SHORT.get(character, form)


class _JsonEscapes(_Escapes):
    @staticmethod
    def escape(character: str) -> str:
        return json.dumps(character)[1:-1] if character != "\x7f" else r"\u007f"


_ESCAPES: Final = _Escapes()
_JSON_ESCAPES: Final = _JsonEscapes()
_CODE: Final = str.maketrans({"`": r"\x60", "|": r"\x7c"})
