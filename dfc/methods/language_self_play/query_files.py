"""Queries of a file, for data-backed runs: one a line, or JSON lines with the key ``query``."""

import json
from collections.abc import Sequence
from pathlib import Path

from dfc.errors import ConfigError, cut, error_text, shown
from dfc.files import half_a_pair

_LARGEST = 2**30  # bytes of a file
_SHOWN = 5  # problems of a file
_LONGEST = 100_000  # characters of a query


def read(path: Path, key: str = "data") -> list[str]:
    """Returns the queries of a file, in its order, white space at their ends removed.

    A file whose name ends with ``.jsonl`` has one JSON object a line, the query under ``query``; such as a run's own
    records of its queries. Any other has one query a line. Errors name the setting `key`.

    Raises:
      ConfigError: there is no such file, or a line is empty, too long or not of that form; names file and line.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise ConfigError([f"{key}={str(path)!r}: has more than {_LARGEST} bytes; cut it"])
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{key}={str(path)!r}: cannot be read as UTF-8 text: {error_text(error)}"]) from None
    problems: list[str] = []
    queries: list[str] = []
    for number, line in enumerate(lines, start=1):
        query, problem = _query(line, json_lines=path.suffix == ".jsonl")
        queries.append(query)
        if problem and len(problems) < _SHOWN:
            problems.append(f"{key}={str(path)!r}, line {number}: {problem}")
    if problems:
        raise ConfigError(problems)
    return queries


def _query(line: str, *, json_lines: bool) -> tuple[str, str]:
    """Returns a line's query, and what is wrong with it."""
    query: object = line
    if json_lines and line.strip():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return "", f'is no JSON: {cut(line, 80)!r}; write {{"query": "..."}}, or name the file .txt'
        query = record.get("query") if isinstance(record, dict) else None
        if not isinstance(query, str):
            return "", 'has no text under "query"; write {"query": "..."}'
    text = str(query).strip()
    if not text:
        return "", "is empty; remove the line, or write a query there"
    if len(text) > _LONGEST:
        return "", f"has {len(text)} characters, more than {_LONGEST}; cut it"
    if half_a_pair(text):
        return "", f"{shown(text)} holds half a surrogate pair, which UTF-8 cannot encode; correct it"
    return text, ""


def of_iteration(queries: Sequence[str], count: int, iteration: int) -> list[str]:
    """Returns the queries of an iteration, from 0: the file's in its order, again and again."""
    return [queries[(iteration * count + place) % len(queries)] for place in range(count)]
