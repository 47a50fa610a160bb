"""Folders with the tokenizer and chat template of every family, and conversations in them.

Templates and tokenizers are small ones with the facts of the released ones: tags, white space, stripping, where the
system message goes, which thoughts are dropped, where SentencePiece puts spaces.
"""

import dataclasses
import json

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "Nim. You are Player 0.\nPiles: 3, 4, 5.",
    "Opponent plays [4]. Answer in brackets, for example [4].",
    "[INST] <<SYS>>\nYou play a game.\n<</SYS>>\n\nuser\nassistant\nmodel\nsystem\n\nthink [/INST]",
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
] * 3
DATE = "26 Jul 2024"
THINK = ("<think>", "</think>")
EMPTY_BLOCK = "<think>\n\n</think>\n\n"

# ---- templates ------------------------------------------------------------------------------------------------

LLAMA2 = """\
{%- set ns = namespace(prefix='') %}
{%- for m in messages %}
  {%- if m.role == 'system' %}{%- set ns.prefix = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}
  {%- elif m.role == 'user' %}
    {{- bos_token + '[INST] ' + (ns.prefix + m.content).strip() + ' [/INST]' }}{%- set ns.prefix = '' %}
  {%- else %}{{- ' ' + m.content.strip() + ' ' + eos_token }}{%- endif %}
{%- endfor %}"""

LLAMA3 = """\
{%- macro turn(role, text) %}{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + text + '<|eot_id|>' }}
{%- endmacro %}
{%- if date_string is not defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- set system = messages[0].content | trim if messages[0].role == 'system' else '' %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{{- bos_token }}
{{- turn('system', 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n' + system) }}
{%- for m in rest %}{{- turn(m.role, m.content | trim) }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

QWEN25 = """\
{%- if messages[0].role != 'system' %}{{- '<|im_start|>system\\nYou play a game.<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

# A reply is shown with its thoughts only behind the last user message, and with an empty block if it has none there.
QWEN3 = """\
{%- set ns = namespace(last=0) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
  {%- set text = m.content %}{%- set thought = '' %}
  {%- if m.role == 'assistant' and '</think>' in text %}
    {%- set thought = text.partition('</think>')[0].partition('<think>')[2].strip('\\n') %}
    {%- set text = text.rpartition('</think>')[2].lstrip('\\n') %}
  {%- endif %}
  {%- if m.role == 'assistant' and loop.index0 > ns.last %}
    {%- set text = '<think>\\n' + thought + '\\n</think>\\n\\n' + text.lstrip('\\n') %}
  {%- endif %}
  {{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- '<|im_start|>assistant\\n' }}
  {%- if enable_thinking is defined and not enable_thinking %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

MISTRAL = """\
{%- set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{{- bos_token }}
{%- for m in (messages[1:] if system else messages) %}
  {%- if m.role == 'user' %}{{- '[INST] ' + (system if loop.last else '') + m.content + '[/INST]' }}
  {%- else %}{{- ' ' + m.content | trim + eos_token }}{%- endif %}
{%- endfor %}"""

MISTRAL_FIRST = """\
{{- bos_token }}
{%- for m in messages %}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('user, assistant, user') }}{%- endif %}
  {{- '[INST] ' + m.content + ' [/INST]' if m.role == 'user' else m.content + eos_token }}
{%- endfor %}"""

GEMMA3 = """\
{%- set prefix = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{{- bos_token }}
{%- for m in (messages[1:] if messages[0].role == 'system' else messages) %}
  {{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' }}
  {{- (prefix if loop.first else '') + m.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

GEMMA2 = "{%- if messages[0].role == 'system' %}{{- raise_exception('no system role') }}{%- endif %}" + GEMMA3


# ---- tokenizers -----------------------------------------------------------------------------------------------


# Llama 3's way of splitting text.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level(corpus=CORPUS, split=SPLIT):
    """Byte-level BPE trained on a few words."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(split), "isolated"), bytes_]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def sentencepiece_like(kind):
    """BPE over characters with ▁ for a space and bytes for what it does not know.

    Args:
      kind: "first" puts ▁ before a whole text (Mistral v0.3), "prepend" before every stretch between special tokens
        (Llama 2), "none" nowhere (Gemma).
    """
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    state = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *state["vocab"], "▁▁"]
    vocab = {piece: token_id for token_id, piece in enumerate(dict.fromkeys(pieces))}
    merges = [("▁", "▁"), *map(tuple, state["merges"])]
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106 - not a password
    )
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    spaces = normalizers.Replace(" ", "▁")
    if kind == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces])
    else:
        tokenizer.normalizer = spaces
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
        tokenizer.add_tokens([tokenizers.AddedToken("\n" * n, special=False, normalized=False) for n in range(1, 5)])
    tokenizer.decoder = decoders.Sequence(steps if kind == "none" else [*steps, decoders.Strip(" ", 1, 0)])
    return tokenizer


@dataclasses.dataclass(frozen=True)
class Family:
    """One family: its template, its tokenizer, and what is known about it."""

    template: str
    build: str
    specials: tuple[str, ...]
    bos: str | None
    eos: str
    folds: bool = False  # the system message stays at the first user message, which the template does not do by itself
    departure: str | None = None


LLAMA3_TOKENS = tuple(f"<|{n}|>" for n in ("begin_of_text", "start_header_id", "end_header_id", "eot_id"))
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
MISTRAL_TOKENS = ("<s>", "</s>", "[INST]", "[/INST]")
GEMMA_TOKENS = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
MOVES = "moves the system message"
FAMILIES = {
    "llama2": Family(LLAMA2, "prepend", ("<s>", "</s>"), "<s>", "</s>"),
    "llama3": Family(LLAMA3, "bytes", LLAMA3_TOKENS, "<|begin_of_text|>", "<|eot_id|>"),
    "qwen2.5": Family(QWEN25, "bytes", CHATML_TOKENS, None, "<|im_end|>"),
    "qwen3": Family(QWEN3, "bytes", CHATML_TOKENS, None, "<|im_end|>", departure="leaves out the thoughts"),
    "mistral": Family(MISTRAL, "first", MISTRAL_TOKENS, "<s>", "</s>", folds=True, departure=MOVES),
    "mistral_legacy": Family(MISTRAL, "prepend", MISTRAL_TOKENS, "<s>", "</s>", folds=True, departure=MOVES),
    "mistral_first": Family(MISTRAL_FIRST, "first", MISTRAL_TOKENS, "<s>", "</s>", folds=True),
    "gemma2": Family(GEMMA2, "none", GEMMA_TOKENS, "<bos>", "<eos>", folds=True),
    "gemma3": Family(GEMMA3, "none", GEMMA_TOKENS, "<bos>", "<eos>"),
}


def save(folder, tokenizer, template, specials, *, eos, bos=None, added=()):
    """Writes a model folder's tokenizer files; `added` are tokens that are not special."""
    tokenizer.add_tokens([tokenizers.AddedToken(t, special=False, normalized=False) for t in added])
    tokenizer.add_special_tokens([tokenizers.AddedToken(t, special=True, normalized=False) for t in specials])
    if bos is not None:
        # Inside a conversation the template writes it; the tokenizer must not double it.
        pair = (bos, tokenizer.token_to_id(bos))
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[pair])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, "bos_token": bos}
    (folder / "tokenizer_config.json").write_text(json.dumps({k: v for k, v in config.items() if v}))
    (folder / "chat_template.jinja").write_text(template)


def write(folder, family):
    tokenizer = byte_level() if family.build == "bytes" else sentencepiece_like(family.build)
    added = THINK if family.template == QWEN3 else ()
    save(folder, tokenizer, family.template, family.specials, eos=family.eos, bos=family.bos, added=added)


# ---- conversations --------------------------------------------------------------------------------------------


def rows(turns, last, system=None, *, folds=False):
    messages = [
        ("user", content) if i == 0 else ("assistant", content) for turn in turns for i, content in enumerate(turn)
    ]
    messages.append(("user", last))
    if system is not None and folds:
        messages[0] = ("user", f"{system}\n\n{messages[0][1]}")
    elif system is not None:
        messages.insert(0, ("system", system))
    return [{"role": role, "content": content} for role, content in messages]


def whole(oracle, messages, **options):
    return oracle.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False, date_string=DATE, **options
    )


def appended(chat, turns, last, system=None):
    """Ids after every user message of a conversation that is only ever appended to."""
    contents = [content for content, _ in turns] + [last]
    token_ids = chat.first_turn(contents[0], system=system)
    grown = [list(token_ids)]
    for (_, reply), content in zip(turns, contents[1:], strict=True):
        token_ids += chat.encode_reply(reply) + chat.next_turn(content, closed=False)
        grown.append(list(token_ids))
    return grown
