"""Instructions without a right answer, and answers to them, in AlpacaEval's layout.

A row is an object with the texts ``instruction``, ``output`` (an answer; only where answers are read), ``generator``
(who gave it) and ``dataset`` (which part of the benchmark it belongs to); ``dataset`` may be missing. What would belong
to the question and is not asked, such as ``system`` or ``history``, is refused; other fields describe the row.
"""

import collections
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dfc.errors import shown
from dfc.files import half_a_pair, make_folder, replacing
from dfc.records.trajectory_files import DatasetError
from dfc.rows.conversation_fields import BadRow, absent
from dfc.rows.row_files import MAX_ROW_BYTES, parsed_rows
from dfc.scoring.scorer import LONGEST_ANSWER

NO_DATASET = "all"  # what rows without a data set are counted under
_OF_THE_QUESTION = (  # fields that layouts near to this one put before or beside the instruction
    *("system", "system_prompt", "history", "messages", "conversation", "conversations", "prompt"),
    *("tools", "functions", "documents", "images", "image", "videos", "audios", "chat_template_kwargs"),
)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
      text: what is asked, the first message of a conversation.
      dataset: the part of the benchmark that it belongs to.
    """

    text: str
    dataset: str = NO_DATASET


def read_instructions(
    path: Path, *, most: int = 0, max_row_bytes: int = MAX_ROW_BYTES, reserved: Collection[str] = ()
) -> list[Instruction]:
    """Returns the instructions of a file in their order; one that is there twice in a data set is returned once.

    A path ends with ``.json`` (one array, or lines), ``.jsonl`` or ``.parquet``. Only the first `most` rows are read;
    0: all. No data set may have a name of `reserved`.

    Raises:
      DatasetError: the file cannot be read, or a row has no instruction, one that is too long to be judged, one that
        goes on in ``input`` or another field, or a data set of a reserved name; file, row and the fix are named.
    """

    def parse(row: Mapping[str, Any]) -> Instruction:
        one = _instruction(row)
        if one.dataset in reserved:
            raise BadRow(f"dataset {one.dataset!r} is what the tables call another row; give it another name")
        return one

    return list(dict.fromkeys(parsed_rows(path, parse, max_row_bytes, most=most)))


def read_outputs(path: Path, instructions: Sequence[Instruction], *, max_row_bytes: int = MAX_ROW_BYTES) -> list[str]:
    """Returns the answer to each instruction that a file holds; rows of other instructions are passed over.

    The row of the right data set counts, else the one without ``dataset``, else that of any other data set, where all
    of these say the same.

    Raises:
      DatasetError: as for `read_instructions`, a row has no output, two rows answer one instruction in two ways, or an
        instruction has no answer.
    """
    known: dict[str, dict[str, str]] = collections.defaultdict(dict)

    def parse(row: Mapping[str, Any]) -> None:
        asked, output = _instruction(row), row.get("output")
        if not isinstance(output, str) or half_a_pair(output):
            raise BadRow(f"output must be a text that UTF-8 can encode, got {shown(output)}")
        if known[asked.text].setdefault(asked.dataset, output) != output:
            raise BadRow(f"answers {asked.text[:80]!r} otherwise than an earlier row; leave one of them out")

    parsed_rows(path, parse, max_row_bytes)
    found, absent = [], []
    for one in instructions:
        outputs = known.get(one.text, {})
        if (dataset := next((name for name in (one.dataset, NO_DATASET) if name in outputs), None)) is not None:
            found.append(outputs[dataset])
        elif len(set(outputs.values())) == 1:
            found.append(next(iter(outputs.values())))
        else:
            absent.append(one)
    if absent:
        first = f"the first is {absent[0].text[:80]!r} of {absent[0].dataset}"
        raise DatasetError(
            f"{path}: has no answer, or several, to {len(absent)} of {len(instructions)} instructions; {first}. Add "
            "them, or name fewer instructions"
        )
    return found


def write_outputs(path: Path, instructions: Sequence[Instruction], outputs: Iterable[str], generator: str) -> None:
    """Writes answers as one JSON array, as AlpacaEval's own programs take it (``model_outputs``).

    Raises:
      ValueError: not as many answers as instructions.
    """
    rows = [
        {"instruction": one.text, "output": output, "generator": generator, "dataset": one.dataset}
        for one, output in zip(instructions, outputs, strict=True)
    ]
    make_folder(path.parent)
    with replacing(path) as file:
        file.write(json.dumps(rows, indent=1))


def _instruction(row: Mapping[str, Any]) -> Instruction:
    text = _text(row, "instruction")
    if not text:
        hint = "expected AlpacaEval's layout; add it, or leave the row out"
        raise BadRow(f"instruction must be a text that is not empty, got {shown(row.get('instruction'))}; {hint}")
    if len(text) > LONGEST_ANSWER:
        raise BadRow(
            f"instruction has {len(text)} characters, and at most {LONGEST_ANSWER} are judged; leave the row out"
        )
    if half_a_pair(text):
        raise BadRow(f"instruction {shown(text)} holds half a surrogate pair, which UTF-8 cannot encode; correct it")
    if row.get("input"):
        raise BadRow("has an input beside its instruction; write both into instruction, as one text")
    for name in _OF_THE_QUESTION:
        if not absent(row.get(name)):
            raise BadRow(
                f"has {name} beside its instruction, which would not be asked; write it into instruction, or drop it"
            )
    dataset = row.get("dataset")
    if dataset is not None and not isinstance(dataset, str):
        raise BadRow(f"dataset must be a text, got {shown(dataset)}")
    return Instruction(text, dataset or NO_DATASET)


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) and value.strip() else ""
