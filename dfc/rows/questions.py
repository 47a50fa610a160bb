r"""Questions with checkable answers, in the layouts that others publish: GSM8K, MATH, HumanEval, MBPP.

The layout is recognised by a row's columns:

    GSM8K      question, answer            the result follows ``####``                    (arXiv 2110.14168)
    MATH       problem, solution           the result stands in the last ``\boxed``        (arXiv 2103.03874)
    HumanEval  prompt, test, entry_point   the tests define check(candidate)              (arXiv 2107.03374)
    MBPP       text or prompt, test_list   and test_setup_code, or test_imports           (arXiv 2108.07732)

What a model is asked is in our own words: the result in a box, or the program in one block of code. MBPP's prompt shows
its tests, as the paper's does.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from dfc.errors import shown
from dfc.files import half_a_pair
from dfc.rows.conversation_fields import BadRow
from dfc.rows.row_files import MAX_ROW_BYTES, parsed_rows
from dfc.scoring.programs import ProgramTests

Kind = Literal["mathematics", "programs"]
_LONGEST_RESULT = 10_000  # characters


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
      query: what is asked, the first message of a conversation.
      reference: the right result, or the tests of a program.
    """

    query: str
    reference: str | ProgramTests

    @property
    def kind(self) -> Kind:
        """What scores its answers."""
        return "programs" if isinstance(self.reference, ProgramTests) else "mathematics"


def read_questions(path: Path, *, most: int = 0, max_row_bytes: int = MAX_ROW_BYTES) -> list[Question]:
    """Returns the questions of a file, all of them checked; one that is there twice is returned once.

    A path ends with ``.jsonl``, ``.json`` (one array, or lines) or ``.parquet``. Only the first `most` questions are
    read; 0: all.

    Raises:
      DatasetError: the file cannot be read, or a row is of no layout, has no result, another result than an earlier
        row that asks the same, or tests that cannot be run; the file, the row and the fix are named.
    """
    found: dict[str, Question] = {}

    def parse(row: Mapping[str, Any]) -> None:
        question = _read(row)
        if found.setdefault(question.query, question) != question:
            raise BadRow("asks what an earlier row asks and has another result; leave one of them out")

    parsed_rows(path, parse, max_row_bytes, most=most)
    return list(found.values())


def _read(row: Mapping[str, Any]) -> Question:
    for columns, read in _LAYOUTS:
        if all(any(name in row for name in one.split("|")) for one in columns):
            return read(row)
    wanted = "; ".join(" and ".join(columns).replace("|", " or ") for columns, _ in _LAYOUTS)
    raise BadRow(f"has the columns {shown(list(row))}; expected those of one layout: {wanted}")


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{name} must be a text that is not empty, got {shown(value)}")
    if half_a_pair(value):
        raise BadRow(f"{name} {shown(value)} holds half a surrogate pair, which UTF-8 cannot encode; correct it")
    return value


def _texts(row: Mapping[str, Any], name: str) -> list[str]:
    value = row.get(name)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BadRow(f"{name} must be a list of texts, got {shown(value)}")
    return value


# ---- mathematics -----------------------------------------------------------------------------------------------------


def _mathematics(question: str, result: str | None, where: str) -> Question:
    if result is None or not result.strip() or len(result) > _LONGEST_RESULT:
        raise BadRow(f"no result {where} of at most {_LONGEST_RESULT} characters; leave the row out, or add it")
    asked = f"{question.strip()}\n\nThink step by step. Write the result at the end, in \\boxed{{}}."
    return Question(asked, result.strip())


def _gsm8k(row: Mapping[str, Any]) -> Question:
    _, mark, result = _text(row, "answer").rpartition("####")
    return _mathematics(_text(row, "question"), result.replace(",", "") if mark else None, "behind ####")


def _math(row: Mapping[str, Any]) -> Question:
    return _mathematics(_text(row, "problem"), boxed(_text(row, "solution")), "in \\boxed{} in the solution")


def boxed(text: str) -> str | None:
    r"""Returns what stands in the last ``\boxed{...}``, braces within it and all; None: there is none that ends.

    >>> boxed(r"So \boxed{1} or \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    start = text.rfind("\\boxed")
    rest = text[start + len("\\boxed") :].lstrip() if start >= 0 else ""
    if not rest.startswith("{"):
        return rest.split("$")[0].split()[0] if rest.split("$")[0].split() else None
    depth = 0
    for place, sign in enumerate(rest):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return rest[1:place]
    return None


# ---- programs --------------------------------------------------------------------------------------------------------


def _program(asked: str, tests: ProgramTests) -> Question:
    if (problem := tests.problem()) is not None:
        raise BadRow(f"{problem}; leave the row out, or correct it")
    return Question(asked, tests)


def _humaneval(row: Mapping[str, Any]) -> Question:
    prompt = _text(row, "prompt")
    asked = (
        "Complete this Python function. Answer with the whole function and its imports in one block of code.\n\n"
        f"```python\n{prompt.rstrip()}\n```"
    )
    return _program(asked, ProgramTests(_text(row, "test"), _text(row, "entry_point").strip(), prompt))


def _mbpp(row: Mapping[str, Any]) -> Question:
    text = _text(row, "text" if "text" in row else "prompt")
    tests = "\n".join(_texts(row, "test_list"))
    setup = row.get("test_setup_code")
    imports = _texts(row, "test_imports") if "test_imports" in row else [setup if isinstance(setup, str) else ""]
    asked = (
        f"{text.strip()}\n\nWrite it in Python, in one block of code. It must pass these tests:\n\n"
        f"```python\n{tests.rstrip()}\n```"
    )
    return _program(asked, ProgramTests(tests, setup="\n".join(imports)))


_LAYOUTS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Question]], ...] = (
    (("prompt", "test", "entry_point"), _humaneval),
    (("text|prompt", "test_list"), _mbpp),
    (("problem", "solution"), _math),
    (("question", "answer"), _gsm8k),
)
