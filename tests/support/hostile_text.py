"""Text that another server can choose, and that affects terminals, logs or chats. No output may contain it."""

from typing import Final
from unicodedata import category

TEXTS: Final = (
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "c1 \x9b31m\x85 del \x7f bell \x07 back\x08\x08",
    "one\nerror: forged\r\nprogress: forged\ttab",
    "\u202eright to left\u202c \u2066isolate\u2069 \u200e\u200f\u061c",
    "line\u2028paragraph\u2029 zero\u200b\u200c\u200d\ufeff width \U000e0041\U000e007f tags \u3164 \u034f",
    "[bold red]markup[/] [link=https://evil.example]click[/link] :warning:",
    "@room @everyone @here <!channel> <@U1> https://matrix.to/#/@victim:example.org",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "[click](https://evil.example) **bold** `code` ~~gone~~ ||hidden|| | cell |",
    "=HYPERLINK(\"https://evil.example\")",
    "+1+1", "-2+3", "@SUM(1+1)*cmd|' /C calc'!A0", "\t=1", "  =1+1", "\uff1d1+1",
)  # fmt: skip
"""They contain no NUL, because PostgreSQL's text cannot, and no surrogates, which are not UTF-8."""

ALL: Final = " ".join(TEXTS)


def list_unprintable(text: str, *, lines: bool = True) -> list[str]:
    """Return characters of ``text`` that no output may contain; ``lines`` allows line breaks."""
    return [
        item
        for item in text
        if category(item) in {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"} and not (lines and item == "\n")
    ]
