"""Rows to train on, read from files: tokens and masks of trajectories, or of both sides of pairs.

Files made by `dfc.rows.preference_pairs.build` hold the tokens that were sampled. Conversations of others
(`dfc.rows.conversations`) are encoded with the model's tokenizer, as is the first prompt of the former, which shows
whether the tokens are of this tokenizer and chat template. A file is checked to its end before anything trains, and
stays in memory at 5 bytes a token.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dfc.models.chat import ChatTokenizer
from dfc.records.trajectories import BRANCH_COLUMNS, COLUMNS, Message
from dfc.records.trajectory_files import DatasetError, damage, refuse_inflated
from dfc.rows.conversation_fields import describes, listed
from dfc.rows.conversations import encode, read_conversations, read_pairs
from dfc.rows.preference_pairs import PAIRS_FILE, SFT_FILE
from dfc.rows.row_files import MAX_ROW_BYTES, SUFFIXES

DATA_FOLDER, TABLES = "data", "tables.md"  # in the run folder of build_data and build_dialogues
_ENCODED_AT_ONCE = 256
_HINT = "copy it again, or build it again"
_LOOKED_AT = 8  # rows whose messages are compared with their tokens
_SIDES = ("chosen", "rejected")


@dataclasses.dataclass(frozen=True)
class Sequences:
    """One sequence of tokens per row, what follows its last action token left out.

    Attributes:
      token_ids: int32, the tokens of many rows one after another, in several arrays.
      mask: bool, which of them are action tokens.
      part: in which of the arrays each row is, int32 [rows].
      start: where it begins there, int64 [rows].
      lengths: tokens of each row, int32 [rows].
      actions: action tokens of each row, int32 [rows].
    """

    token_ids: Sequence[np.ndarray]
    mask: Sequence[np.ndarray]
    part: np.ndarray
    start: np.ndarray
    lengths: np.ndarray
    actions: np.ndarray

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns tokens int32 [n] and mask bool [n] of a row."""
        part, start = self.part[row], self.start[row]
        place = slice(start, start + self.lengths[row])
        return self.token_ids[part][place], self.mask[part][place]


@dataclasses.dataclass(frozen=True)
class TrainingRows:
    """What is trained on, one row a trajectory or a pair.

    Attributes:
      path: the file they come from.
      sides: the trajectories; or the chosen ones and the rejected ones.
    """

    path: Path
    sides: tuple[Sequences, ...]

    def __len__(self) -> int:
        return len(self.lengths)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each row, all sides together, int64 [rows]."""
        found: np.ndarray = np.stack([side.lengths for side in self.sides]).sum(axis=0, dtype=np.int64)
        return found

    @functools.cached_property
    def actions(self) -> np.ndarray:
        """Action tokens of each row, all sides together, int64 [rows]."""
        found: np.ndarray = np.stack([side.actions for side in self.sides]).sum(axis=0, dtype=np.int64)
        return found

    @functools.cached_property
    def digest(self) -> str:
        """A digest of everything that training reads: other tokens, masks or another order have another one."""
        found = hashlib.blake2b(digest_size=16)
        for side in self.sides:
            found.update(np.int64(len(side.lengths)).tobytes() + side.lengths.tobytes())
            for row in range(len(side.lengths)):
                token_ids, mask = side[row]
                found.update(token_ids.tobytes())
                found.update(np.packbits(mask).tobytes())
        return found.hexdigest()


def dialogue_file(kind: str, *, held_out: bool = False) -> str:
    """Returns the name of a file of build_dialogues: ``sft``, ``pairs_dialogue`` or ``pairs_turn``, held out or not."""
    return f"{kind}{'_held_out' if held_out else ''}.jsonl"


def minigames_file(*, held_out: bool = False) -> str:
    """Returns the name of a file of minigames."""
    return dialogue_file("minigames", held_out=held_out)


def find(path: Path, *, pairs: bool) -> Path:
    """Returns the file that a place means: what a recipe built there, in its run's ``data``, or the file itself.

    Raises:
      DatasetError: there is none, or several.
    """
    if not path.is_dir():
        return path
    name = PAIRS_FILE if pairs else SFT_FILE
    kinds = ("pairs_dialogue", "pairs_turn") if pairs else ("sft",)
    for names in ((name,), tuple(dialogue_file(kind) for kind in kinds)):
        for folder in (path, path / DATA_FOLDER):
            found = [folder / each for each in names if (folder / each).is_file()]
            if len(found) > 1:
                raise DatasetError(f"{path}: holds {' and '.join(file.name for file in found)}; name one of the files")
            if found:
                return found[0]
    raise DatasetError(
        f"{path}: no {name} in it or in its folder {DATA_FOLDER}; run build_data or build_dialogues first and name its "
        f"run, or name a file that ends in {', '.join(SUFFIXES)}"
    )


def read(
    path: Path,
    *,
    pairs: bool,
    vocabulary: int,
    row_length: int,
    tokenizer: Callable[[], ChatTokenizer],
    max_row_bytes: int = MAX_ROW_BYTES,
) -> TrainingRows:
    """Returns the rows of a file, all of them checked.

    The path is a file or a folder (`find`), `vocabulary` the token ids of the model to train, `row_length` the tokens
    that a row of the batch holds; a pair must fit as a whole. `tokenizer` is called where the file has messages.

    Raises:
      DatasetError: the file is cut, inflated, of another layout or without rows; or has a field or a column that is
        not read (`dfc.rows.conversation_fields`); or a row has no action token, begins with one, has tokens the model
        does not know or too many of them, or its sides do not begin alike; or the first one's prompt has other tokens
        than the model's tokenizer gives it. The file, the first such row (from 0) and the fix are named.
    """
    path = find(path, pairs=pairs)
    names = _schema_names(path) if path.suffix == ".parquet" else ()
    if any(name.endswith("token_ids") for name in names):
        rows = _read_token_ids(path, names, pairs, vocabulary)
        if len(rows) and (messages := "chosen_messages" if pairs else "messages") in names:
            _refuse_other_tokenizer(rows, messages, tokenizer())
    else:
        rows = _read_conversations(path, pairs, vocabulary, tokenizer(), max_row_bytes)
    if not len(rows):
        raise DatasetError(f"{path}: no row, so there is nothing to train on; collect more, or build with wider limits")
    if pairs:
        _refuse_other_prompts(rows, names)
    too_long = np.flatnonzero(rows.lengths > row_length)
    if len(too_long):
        what = "both sides of it, which must fit into one row, have" if pairs else "it has"
        limit = "pair_tokens of build_data" if pairs else "sft_tokens of build_data"
        raise DatasetError(
            f"{path}, row {too_long[0]}: {what} {rows.lengths[too_long[0]]} tokens but batch.row_length={row_length}; "
            f"raise it to {rows.lengths.max()}, which holds every row, or build the data with a lower {limit} "
            f"({len(too_long)} of {len(rows)} rows are too long)"
        )
    return rows


def _refuse_other_tokenizer(rows: TrainingRows, column: str, tokenizer: ChatTokenizer) -> None:
    """Raises unless some rows, spread over the file, begin with the tokens the tokenizer makes of their messages."""
    looked_at: dict[int, list[dict[str, str]]] = {}
    with damage(rows.path, _HINT), pq.ParquetFile(rows.path, page_checksum_verification=True) as file:
        number = file.metadata.num_row_groups
        starts = np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in range(number))])
        for group in sorted({part * number // _LOOKED_AT for part in range(_LOOKED_AT)}):
            looked_at[int(starts[group])] = file.read_row_group(group, [column])[column][0].as_py()
    for row, messages in looked_at.items():
        system = messages[0]["content"] if messages[0]["role"] == "system" else None
        first = messages[0 if system is None else 1]
        expected = tokenizer.first_turn(first["content"], system=system)
        found = rows.sides[0][row][0][: len(expected)].tolist()
        if found != expected:
            alike = (one == other for one, other in zip(found, expected, strict=False))
            place = next((n for n, same in enumerate(alike) if not same), len(found))
            came = f"{found[place]} instead of {expected[place]}" if place < len(found) else "none"
            raise DatasetError(
                f"{rows.path}, row {row}: another tokenizer or chat template than the model's made its tokens: token "
                f"{place} of its first message is {came}; train the model that collected it, or one with its "
                "tokenizer, or collect again"
            )


def _refuse_other_prompts(rows: TrainingRows, names: Sequence[str]) -> None:
    """Raises unless both sides of every pair are shown the same before the first reply."""
    # Against an opponent the first message holds its first moves, which are part of what happened, not of the task.
    opponents = _column(rows.path, "opponent") if "opponent" in names else []
    for row in range(len(rows)):
        (chosen, chosen_mask), (rejected, rejected_mask) = (side[row] for side in rows.sides)
        if opponents and opponents[row] != "none":
            continue
        first, other = int(chosen_mask.argmax()), int(rejected_mask.argmax())
        if first != other or not np.array_equal(chosen[:first], rejected[:other]):
            raise DatasetError(
                f"{rows.path}, row {row}: the sides share no prompt: before the first action token chosen has {first} "
                f"tokens and rejected {other}, which must be the same; pair trajectories of one task, or drop the row"
            )


# ---- files of tokens ------------------------------------------------------------------------------------------------


def _schema_names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file; name what build_data made, or a file that was downloaded")
    with damage(path, _HINT):
        return tuple(pq.read_schema(path).names)


def _column(path: Path, name: str) -> list[Any]:
    with damage(path, _HINT):
        return list(pq.read_table(path, columns=[name])[name].to_pylist())


def _read_token_ids(path: Path, names: Sequence[str], pairs: bool, vocabulary: int) -> TrainingRows:
    prefixes = tuple(f"{side}_" for side in _SIDES) if pairs else ("",)
    wanted = [(f"{prefix}token_ids", f"{prefix}mask") for prefix in prefixes]
    absent = [name for both in wanted for name in both if name not in names]
    if absent:
        holds, recipe = ("pairs", "preference") if "chosen_token_ids" in names else ("trajectories", "sft")
        hint = "build it again"
        if (holds == "pairs") != pairs:
            hint = f"it holds {holds}: use the recipe {recipe}, or name {PAIRS_FILE if pairs else SFT_FILE}"
        raise DatasetError(f"{path}: no column {' and no '.join(absent)}, it has {', '.join(names)}; {hint}")
    _refuse_columns(path, names, prefixes)
    builders = [_Builder(path, prefix.rstrip("_"), vocabulary) for prefix in prefixes]
    with damage(path, _HINT), pq.ParquetFile(path, page_checksum_verification=True) as file:
        refuse_inflated(path, file.metadata)
        for number in range(file.metadata.num_row_groups):
            table = file.read_row_group(number, [name for both in wanted for name in both])
            for builder, (token_ids, mask) in zip(builders, wanted, strict=True):
                builder.add(
                    builder.flat(table, token_ids, pa.types.is_int32, "int32"),
                    builder.flat(table, mask, pa.types.is_boolean, "bool"),
                )
    return TrainingRows(path, tuple(builder.built() for builder in builders))


def _refuse_columns(path: Path, names: Sequence[str], prefixes: Sequence[str]) -> None:
    """Raises unless every column is one of a trajectory, describes the rows, or is empty; of tokens two are read."""
    known = {f"{prefix}{name}" for prefix in ("", *prefixes) for name in (*COLUMNS, *BRANCH_COLUMNS)}
    others = [name for name in names if name not in known and not describes(name)]
    if wrong := [name for name in others if any(value is not None for value in _column(path, name))]:
        raise DatasetError(
            f"{path}: no column of this name is known beside token_ids: {listed(wrong)}; what is trained on stands in "
            "token_ids and mask alone: clear mask where it says so, and drop the column"
        )


class _Builder:
    """Checks the sequences of one side, many rows at a time, and puts them together."""

    def __init__(self, path: Path, side: str, vocabulary: int) -> None:
        self._path, self._vocabulary = path, vocabulary
        self._side = f"{side} " if side else ""
        self._token_ids: list[np.ndarray] = []
        self._mask: list[np.ndarray] = []
        self._figures: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self._rows = 0

    def flat(
        self, table: pa.Table, name: str, is_kind: Callable[[pa.DataType], bool], kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the values of a column of lists one after another, and how many each row has."""
        column, found = table[name], table.schema.field(name).type
        if not (pa.types.is_list(found) and is_kind(found.value_type)):
            raise DatasetError(f"{self._path}: column {name} is {found}, expected list of {kind}; build the file again")
        lists = column.combine_chunks()
        values = lists.flatten()
        if lists.null_count or values.null_count:
            rows = [n for n, row in enumerate(lists.to_pylist()) if row is None or None in row]
            raise DatasetError(
                f"{self._path}, row {self._rows + rows[0]}: {name} is not there; drop the row, or build the file again"
            )
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return values.to_numpy(zero_copy_only=False), lengths

    def add(self, token_ids: tuple[np.ndarray, np.ndarray], mask: tuple[np.ndarray, np.ndarray]) -> None:
        """Adds rows: values one after another, and how many of them each row has."""
        values, lengths = token_ids
        chosen, others = mask
        uneven = np.flatnonzero(lengths != others)
        if len(uneven):
            row = uneven[0]
            self._refuse(row, f"{lengths[row]} tokens but a mask of {others[row]}; both must be of one length")
        ends = np.cumsum(lengths)
        starts = ends - lengths
        unknown = np.flatnonzero((values < 0) | (values >= self._vocabulary))
        if len(unknown):
            row = int(np.searchsorted(ends, unknown[0], side="right"))
            what = f"token id {values[unknown[0]]}, but the model has token ids 0 to {self._vocabulary - 1}"
            self._refuse(row, f"{what}: another model's tokenizer made it; train that model, or collect with this one")
        places = np.flatnonzero(chosen)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(chosen, dtype=np.int64)])
        actions = before[ends] - before[starts]
        empty = np.flatnonzero(actions == 0)
        if len(empty):
            self._refuse(empty[0], "no action token, so there is nothing to learn from it; drop the row")
        unpredicted = np.flatnonzero(chosen[starts])
        if len(unpredicted):
            what = "its first token is an action token, which nothing predicts; a prompt must precede"
            self._refuse(unpredicted[0], what)
        trimmed = places[before[ends] - 1] + 1 - starts
        self._figures.append((np.full(len(lengths), len(self._token_ids), np.int32), starts, trimmed, actions))
        self._token_ids.append(values)
        self._mask.append(chosen)
        self._rows += len(lengths)

    def _refuse(self, row: int, why: str) -> None:
        raise DatasetError(f"{self._path}, row {self._rows + row}: {self._side}{why}")

    def built(self) -> Sequences:
        """Returns what was added."""
        part, start, lengths, actions = (
            np.concatenate([figures[n] for figures in self._figures]) if self._figures else np.zeros(0, np.int64)
            for n in range(4)
        )
        return Sequences(self._token_ids, self._mask, part, start, lengths.astype(np.int32), actions.astype(np.int32))


# ---- conversations of others ----------------------------------------------------------------------------------------


def _read_conversations(
    path: Path, pairs: bool, vocabulary: int, tokenizer: ChatTokenizer, max_row_bytes: int
) -> TrainingRows:
    sides: dict[str, list[_Counted]]
    if pairs:
        found = read_pairs(path, max_row_bytes=max_row_bytes)
        sides = {side: [(getattr(pair, side), pair.context_replies, ()) for pair in found] for side in _SIDES}
    else:
        rows = read_conversations(path, max_row_bytes=max_row_bytes)
        sides = {"": [(row.messages, row.context_replies, row.untrained) for row in rows]}
    return TrainingRows(path, tuple(_encoded(path, name, side, vocabulary, tokenizer) for name, side in sides.items()))


# Messages, how many of the first replies do not count, and which of the others do not.
_Counted = tuple[tuple[Message, ...], int, tuple[int, ...]]


def _encoded(path: Path, name: str, side: Sequence[_Counted], vocabulary: int, tokenizer: ChatTokenizer) -> Sequences:
    builder = _Builder(path, name, vocabulary)
    for start in range(0, len(side), _ENCODED_AT_ONCE):
        encoded = [
            encode(messages, tokenizer, context_replies=context, untrained=untrained)
            for messages, context, untrained in side[start : start + _ENCODED_AT_ONCE]
        ]
        lengths = np.asarray([len(token_ids) for token_ids, _ in encoded], np.int64)
        token_ids, mask = (np.concatenate(parts) for parts in zip(*encoded, strict=True))
        builder.add((token_ids, lengths), (mask, lengths))
    return builder.built()
