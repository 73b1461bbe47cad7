"""A digest of Python files by what they do, so that a reworded comment makes nothing stale."""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import tokenize
from pathlib import Path
from tokenize import COMMENT, DEDENT, INDENT, NEWLINE, NL, STRING

_BETWEEN_STATEMENTS = (NEWLINE, NL, INDENT, DEDENT, COMMENT, tokenize.ENCODING)


def code_digest(*paths: Path) -> str:
    """Return the digest of Python files, in the order given, without comments and docstrings."""
    digest = hashlib.sha256()
    for path in paths:
        content = bare(path.read_text()).encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


@functools.cache
def bare(source: str) -> str:
    """Return the source without comments, and without strings that are statements.

    It is text cut out of the source, as the keys in an exported cache are compared under another
    version of Python, which has other tokens for an f-string and other dumps of a syntax tree.
    """
    lines: list[str | None] = [*source.splitlines()]
    tokens = [*tokenize.generate_tokens(io.StringIO(source).readline)]
    before = tokenize.ENCODING
    for token, after in itertools.pairwise(tokens):
        (row, column), (last, _) = token.start, token.end
        if token.type == COMMENT:
            lines[row - 1] = (lines[row - 1] or "")[:column].rstrip() or None
        elif (
            token.type == STRING
            and before in _BETWEEN_STATEMENTS
            and after.type in (NEWLINE, COMMENT)
        ):
            lines[row - 1 : last] = [None] * (last - row + 1)
        before = token.type
    return "\n".join(line for line in lines if line is not None)
