"""Builds the tokenizer of the bundled model from the messages of the games, or from pieces chosen of them.

A fixed phrase may be one long piece, but no piece holds more than one item (a number, cell, disk, die or card), so
that the items a player reads and writes stay separate in the model's input.

Every ordinary piece has the score -1: the Unigram model (Kudo, arXiv 1804.10959) then finds the segmentation with the
fewest pieces. Sums of small integers are exact in float32 (sentencepiece) and in float64 (tokenizers), and both
libraries keep the first best path they find, so both give the same token ids for every text of less than 2**24 pieces;
trained scores have no such guarantee.

Chat format, append-only: ``<s>``, then for every user message its text and ``<|assistant|>``, for every reply its text
and ``<|end|>``. A system message is its text and a newline.
"""

import collections
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import tokenizers
from sentencepiece import sentencepiece_model_pb2 as sentencepiece_model
from tokenizers import decoders, models

from dfc.files import replacing, write_json, write_text

UNKNOWN, BEGIN, ASSISTANT, END, PAD = "<unk>", "<s>", "<|assistant|>", "<|end|>", "<pad>"
SPECIAL_TOKENS = (UNKNOWN, BEGIN, ASSISTANT, END, PAD)
UNKNOWN_ID, BEGIN_ID, ASSISTANT_ID, END_ID, PAD_ID = range(5)

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
  {%- if message['role'] == 'user' -%}
    {{- message['content'] + '<|assistant|>' -}}
  {%- elif message['role'] == 'assistant' -%}
    {{- message['content'] + '<|end|>' -}}
  {%- elif message['role'] == 'system' and loop.first -%}
    {{- message['content'] + '\\n' -}}
  {%- else -%}
    {{- raise_exception('roles are user and assistant, and system for the first message') -}}
  {%- endif -%}
{%- endfor -%}
"""

_BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
_CHARACTERS = ("\n", *map(chr, range(0x20, 0x7F)))
_BEYOND_ASCII = "▢"  # what a piece may hold beside them: of other characters there are the bytes
SMALLEST = len(SPECIAL_TOKENS) + len(_BYTES) + len(_CHARACTERS)
_SCORE = -1.0
# The names of special and byte pieces are ordinary strings to tokenizers' Unigram model. At this score their spelling
# never beats single characters, so a message cannot forge one; sentencepiece never matches them at all.
_NEVER = -1000.0

_ITEM = re.compile(
    r"[0-9]+"  # a number, die, disk or card
    r"|(?<![^\n])[X▢](?: [X▢]){4}(?![^\n])"  # a row of a grid, as dialogue games draw it
    r"|(?<=\[)[A-Z](?![A-Za-z])|(?<![A-Za-z])[A-Z](?=\])"  # a tower in an action, [A C]
    r"|(?<![^\s|])[XO._▢-](?![^\s|])"  # a cell standing alone, X | O | .
    r"|(?<![A-Za-z0-9])[XO._](?=[XO._]+(?:[\s|]|$))|(?<=[XO._])[XO._](?=[XO._\s|]|$)"  # cells of a row such as X.O
)
_CLOSING = re.compile(r"[\])]*[.;:!?]?")


def items(piece: str) -> int:
    r"""Returns how many items a piece holds: digit runs, towers inside brackets, cells and five-cell rows of a board.

    >>> items("[Bid: 3"), items(" C]"), items("]\nB: []\nC: []"), items("X | O"), items("X.O"), items("X ▢ X X ▢")
    (1, 1, 0, 2, 3, 1)
    """
    return sum(1 for _ in _ITEM.finditer(piece))


def _chunks(text: str) -> Iterator[str]:
    """Cuts a text into the fewest chunks of at most one item, the joints at the same positions of a line every time.

    A chunk is what leads to an item, the item, and what closes it; text after the last item belongs to it. Where a
    new line starts between two items, the cut is there.
    """
    start, previous = 0, None
    for item in _ITEM.finditer(text):
        if previous is not None:
            closed = previous + len(_CLOSING.match(text, previous, item.start()).group())  # type: ignore[union-attr]  # matches the empty string
            line = text.find("\n", previous, item.start())
            cut = closed if line < 0 else line
            yield text[start:cut]
            start = cut
        previous = item.end()
    if text[start:]:
        yield text[start:]


def _literals(chunk: str) -> list[str]:
    """Returns the parts of a chunk before, at and after its item: they form numbers the corpus lacks."""
    item = _ITEM.search(chunk)
    if item is None:
        return re.split(r"(?<=[.:!?])(?= )", chunk)
    return [chunk[: item.start()], item.group(), chunk[item.end() :]]


def _vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """Returns the ordinary pieces in the order of their token ids: characters, then chunks, the frequent ones first."""
    repeats = collections.Counter(texts)
    counts: collections.Counter[str] = collections.Counter()
    for text, times in repeats.items():
        for chunk in _chunks(text):
            counts[chunk] += times
    literals: collections.Counter[str] = collections.Counter()
    for chunk, times in counts.items():
        for literal in _literals(chunk):
            literals[literal] += times
    pieces = dict.fromkeys(_CHARACTERS)
    allowed = frozenset((*_CHARACTERS, *_BEYOND_ASCII))
    room = size - SMALLEST + len(_CHARACTERS)
    for ranked in (counts, literals):
        for piece, _ in sorted(ranked.items(), key=lambda entry: (-entry[1], entry[0])):
            usable = allowed.issuperset(piece) and items(piece) <= 1 and not any(s in piece for s in SPECIAL_TOKENS)
            if piece and usable and len(pieces) < room:
                pieces[piece] = None
    return list(pieces)


def _sentencepiece(pieces: Sequence[str]) -> bytes:
    """Returns the serialized sentencepiece model; texts are taken as they are, spaces included."""
    proto = sentencepiece_model.ModelProto()
    kinds = proto.SentencePiece
    rows = [(UNKNOWN, 0.0, kinds.UNKNOWN)]
    rows += [(token, 0.0, kinds.CONTROL) for token in SPECIAL_TOKENS[1:]]
    rows += [(byte, 0.0, kinds.BYTE) for byte in _BYTES]
    rows += [(piece, _SCORE, kinds.NORMAL) for piece in pieces]
    for piece, score, kind in rows:
        proto.pieces.add(piece=piece, score=score, type=kind)
    trainer = proto.trainer_spec
    trainer.model_type = trainer.UNIGRAM
    trainer.vocab_size = len(rows)
    trainer.byte_fallback = True
    trainer.unk_id, trainer.bos_id, trainer.eos_id, trainer.pad_id = UNKNOWN_ID, BEGIN_ID, END_ID, PAD_ID
    trainer.unk_piece, trainer.bos_piece, trainer.eos_piece, trainer.pad_piece = UNKNOWN, BEGIN, END, PAD
    trainer.control_symbols.append(ASSISTANT)
    normalizer = proto.normalizer_spec
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = False
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = False
    serialized: bytes = proto.SerializeToString(deterministic=True)
    return serialized


def _huggingface(pieces: Sequence[str]) -> tokenizers.Tokenizer:
    """Returns the same vocabulary as a `tokenizers` Unigram model."""
    vocabulary = [(token, _NEVER) for token in (*SPECIAL_TOKENS, *_BYTES)] + [(piece, _SCORE) for piece in pieces]
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=UNKNOWN_ID, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([tokenizers.AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    return tokenizer


def build(texts: Iterable[str], folder: Path, *, size: int) -> None:
    """Writes a tokenizer whose pieces are the frequent parts of the given messages.

    The folder gets tokenizer.model (sentencepiece) and tokenizer.json (tokenizers) with equal token ids for every text,
    tokenizer_config.json, special_tokens_map.json and chat_template.jinja. The same messages, in any order, give the
    same files. Besides the parts of messages the vocabulary holds the special tokens, 256 bytes and every printable
    ASCII character, so any text can be encoded and comes back unchanged. Messages are observations and replies alike;
    repetitions count. The folder is created; `size` is the largest number of pieces, special tokens included; there are
    fewer if the messages have no more parts.

    Raises:
      ValueError: `size` has no room for special tokens, bytes and characters.
    """
    if size < SMALLEST:
        raise ValueError(f"size must be at least {SMALLEST} (special tokens, bytes, ASCII characters), got {size}")
    pieces = _vocabulary(texts, size)
    names = {"unk_token": UNKNOWN, "bos_token": BEGIN, "eos_token": END, "pad_token": PAD}
    config = {
        **names,
        "additional_special_tokens": [ASSISTANT],
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / "tokenizer.model", "wb") as file:
        file.write(_sentencepiece(pieces))
    write_text(folder / "tokenizer.json", _huggingface(pieces).to_str(pretty=True))
    for name, data in (("tokenizer_config.json", config), ("special_tokens_map.json", names)):
        write_json(folder / name, data, indent=2, sort_keys=True)
    write_text(folder / "chat_template.jinja", CHAT_TEMPLATE)


def describe(folder: Path, texts: Mapping[str, Sequence[str]]) -> str:
    """Returns a table, one line per name: number of texts, mean and most tokens, the longest text's pieces.

    The folder is that of `build`, texts are by name, such as ``Nim-v0 action``.
    """
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    width = max(map(len, texts), default=0)
    lines = [f"{'':{width}}  texts   mean  most"]
    for name, sample in texts.items():
        encoded = [tokenizer.encode(text, add_special_tokens=False) for text in sample]
        lengths = [len(encoding.ids) for encoding in encoded]
        most = max(lengths, default=0)
        longest = "|".join(encoded[lengths.index(most)].tokens).replace("\n", "\\n") if lengths else ""
        mean = sum(lengths) / max(len(lengths), 1)
        lines.append(f"{name:{width}}  {len(lengths):5}  {mean:5.2f}  {most:4}  {longest}")
    return "\n".join(lines)


# ---- pieces for messages in words -----------------------------------------------------------------------------------

# Where a message is always cut: around tags, numbers, cells of a board, and the letters of a guess and of its marks.
_CUTS = re.compile(
    r"(</?[A-Z][a-z]+>)"
    r"|(^[X▢](?: [X▢]){4}$| ?▢)"  # a row of a grid, or an empty cell in one with other letters
    r"|((?:, )?[01]{3}: )"  # a neighbourhood of an automaton
    r"|([0-9]+ ?|[#*] ?)"
    r"|(\n)"
    r"|(^(?:Accuse|Question|Check the alibi of|Inspect the)(?= ))"  # names are spelled, so that new ones can be
    r"|(^[a-z]+(?=: [a-z] (?:in place|elsewhere|not in))|(?<= )[a-z](?= (?:in place|elsewhere|not in the word)))",
    re.MULTILINE,
)
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:;])(?= )")
_WORDS = re.compile(r" ?[A-Za-z']+| ?[^A-Za-z' ]+| +")
_STRETCHES, _SENTENCES = 0.25, 0.1  # shares of the pieces; words take the rest
_LONG, _OFTEN = 12, 0.002  # a piece of more words must be this share of the most frequent one: no single task's text
_SHORT = 5  # letters of a word that could be a part of a guess
_BEGINNINGS = range(3, 6)  # characters of the beginnings of words, blank included, that can be pieces


def choose_pieces(messages: Iterable[str], number: int) -> list[str]:
    """Returns at most `number` pieces for messages in words; equal for every order of the messages.

    `build` ranks the parts of messages by how often they occur, which is right for games of a few phrases. Messages in
    words need a choice: what always comes as a whole is one piece, other sentences are pieces of words, and what a
    player must look at sign by sign (digits, cells of a board, letters of a guess) stays separate.

    A quarter are whole stretches between cuts, a tenth sentences of the other stretches, the rest words and beginnings
    of words; of each kind those that save the most tokens.

    Args:
      messages: observations and replies; repetitions count.
      number: how many pieces are wanted.
    """
    stretches = _parts(collections.Counter(messages), lambda message: [part for part in _CUTS.split(message) if part])
    often = _OFTEN * max(stretches.values(), default=0)
    chosen = _sentences(stretches, int(_STRETCHES * number), often)
    sentences = _parts(_without(stretches, chosen), _SENTENCE_ENDS.split)
    chosen += _sentences(sentences, int(_SENTENCES * number), often)
    words = _parts(_without(sentences, chosen), _WORDS.findall)
    for word, times in list(words.items()):
        for end in _BEGINNINGS:
            if end < len(word):
                words[word[:end]] += times // len(word)  # a rough share: the word itself may become a piece
    saved = {word: times * (len(word.encode()) - 1) for word, times in _without(words, chosen).items()}
    return chosen + _best(saved, number - len(chosen))


def _sentences(counts: Mapping[str, int], number: int, often: float) -> list[str]:
    """Returns the texts that save most tokens, beside pieces that are words; long ones only if they come often."""
    words = {part: len(_WORDS.findall(part)) for part in counts}
    return _best({p: n * (words[p] - 1) for p, n in counts.items() if n >= often or words[p] <= _LONG}, number)


def _parts(counts: Mapping[str, int], cut: Callable[[str], list[str]]) -> collections.Counter[str]:
    found: collections.Counter[str] = collections.Counter()
    for text, times in counts.items():
        for part in cut(text):
            found[part] += times
    return found


def _without(counts: Mapping[str, int], chosen: list[str]) -> collections.Counter[str]:
    taken = frozenset(chosen)
    return collections.Counter({part: times for part, times in counts.items() if part not in taken})


def _best(saved: Mapping[str, int], number: int) -> list[str]:
    """Returns the pieces that save most tokens over all messages, those first that save more."""
    useful = [piece for piece, num_tokens in saved.items() if num_tokens > 0 and _allowed(piece)]
    return sorted(useful, key=lambda piece: (-saved[piece], piece))[:number]


def _allowed(piece: str) -> bool:
    """Whether a piece leaves the letters of a hidden word apart: those stand without a blank before them."""
    inside = piece[0].islower() and piece.isalpha() and len(piece) <= _SHORT
    return len(piece.encode()) > 1 and not inside and items(piece) <= 1
