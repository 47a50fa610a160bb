"""Tiny GGUF files, written by llama.cpp's own package from models of transformers, and a tokenizer by brute force."""

import dataclasses
import itertools

import gguf
import regex
from transformers.convert_slow_tokenizer import bytes_to_unicode

SPELLING = bytes_to_unicode()  # GPT-2's letter for each byte
MERGES = ("Ġ Ġ", "ĠĠ Ġ", "ĠĠ ĠĠ", "h e", "l l", "Ġ t", "Ġt he", "i n", "e r", "in g", "1 2", "Ġ 1", "a m", "Ä Ĭ", "u s")
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
SPECIAL = {"<|endoftext|>": CONTROL, "<|im_start|>": CONTROL, "<|im_end|>": CONTROL}
LATER = {"<tool>": USER_DEFINED, "[PAD]": UNUSED}
TOKENS = (*SPECIAL, *SPELLING.values(), *dict.fromkeys(merge.replace(" ", "") for merge in MERGES), *LATER)
KINDS = tuple({**SPECIAL, **LATER}.get(token, 1) for token in TOKENS)
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SIZES = {
    "vocab_size": len(TOKENS),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
# How texts are cut before merging, one expression after the other, as src/llama-vocab.cpp of llama.cpp has them.
GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2_WORDS = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS = {"smollm": (r"\p{N}", GPT2_WORDS), "qwen2": (_QWEN2_WORDS,)}


@dataclasses.dataclass
class Contents:
    """What is written to a file; a test changes some of it."""

    fields: dict  # by key: (value, gguf.GGUFValueType or None for what add_key_value infers)
    tensors: dict  # by name: (array, its type)


def permuted(weights, heads):
    """Rows of queries or keys in the order of llama.cpp, as its convert_hf_to_gguf.py has it."""
    halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return halves.swapaxes(1, 2).reshape(weights.shape)


def contents(architecture, config, state, *, pre, quantized=False):
    """Returns what llama.cpp's converter writes of a model: its metadata, and its weights from a state dict."""
    text, count, number, flag = (getattr(gguf.GGUFValueType, name) for name in ("STRING", "UINT32", "FLOAT32", "BOOL"))
    rope = config["rope_parameters"]["rope_theta"]
    fields = {
        "general.type": ("model", text),
        "general.name": ("Tiny", text),
        "general.tags": (["a", "b"], gguf.GGUFValueType.ARRAY),
        f"{architecture}.block_count": (config["num_hidden_layers"], count),
        f"{architecture}.context_length": (config["max_position_embeddings"], count),
        f"{architecture}.embedding_length": (config["hidden_size"], count),
        f"{architecture}.feed_forward_length": (config["intermediate_size"], count),
        f"{architecture}.attention.head_count": (config["num_attention_heads"], count),
        f"{architecture}.attention.head_count_kv": (config["num_key_value_heads"], count),
        f"{architecture}.attention.layer_norm_rms_epsilon": (config["rms_norm_eps"], number),
        f"{architecture}.rope.freq_base": (rope, number),
        "tokenizer.ggml.model": ("gpt2", text),
        "tokenizer.ggml.pre": (pre, text),
        "tokenizer.ggml.tokens": (list(TOKENS), gguf.GGUFValueType.ARRAY),
        "tokenizer.ggml.token_type": (list(KINDS), gguf.GGUFValueType.ARRAY),
        "tokenizer.ggml.merges": (list(MERGES), gguf.GGUFValueType.ARRAY),
        "tokenizer.ggml.bos_token_id": (1, count),
        "tokenizer.ggml.eos_token_id": (2, count),
        "tokenizer.ggml.padding_token_id": (2, count),
        "tokenizer.ggml.add_bos_token": (False, flag),
        "tokenizer.chat_template": (TEMPLATE, text),
    }
    if architecture == "llama":
        fields["llama.rope.dimension_count"] = (config["hidden_size"] // config["num_attention_heads"], count)
        fields["llama.vocab_size"] = (config["vocab_size"], count)
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    tensors = {}
    for name, values in state.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            values = permuted(values, config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"])  # noqa: PLW2901
        kind = gguf.GGMLQuantizationType.F32
        if quantized and values.ndim > 1:
            kind = gguf.GGMLQuantizationType.Q8_0 if "embed" in name else gguf.GGMLQuantizationType.Q4_1
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        tensors[theirs] = (gguf.quants.quantize(values, kind), kind)
    return Contents(fields, tensors)


def write(path, architecture, written):
    """Writes a file with llama.cpp's package."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, (value, kind) in written.fields.items():
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
    for name, (values, kind) in written.tensors.items():
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def brute_force_tokens(text, pre, tokens=TOKENS, merges=MERGES):
    """Returns the tokens of a text without special ones: cut, spelled in letters for bytes, merged pair by pair."""
    number = {token: index for index, token in enumerate(tokens)}
    rank = {tuple(merge.split(" ")): index for index, merge in enumerate(merges)}
    pieces = [text]
    for cut in CUTS[pre]:
        pieces = [part for piece in pieces for part in _isolated(cut, piece)]
    found = []
    for piece in pieces:
        symbols = [SPELLING[byte] for byte in piece.encode()]
        symbols = [symbol for symbol in symbols if symbol in number]  # a byte without a token vanishes
        while pairs := [(rank[pair], at) for at, pair in enumerate(itertools.pairwise(symbols)) if pair in rank]:
            _, at = min(pairs)
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        found += [number[symbol] for symbol in symbols]
    return found


def _isolated(cut, text):
    """Yields what an expression finds in a text, and what lies between."""
    end = 0
    for match in regex.finditer(cut, text):
        yield from (part for part in (text[end : match.start()], match[0]) if part)
        end = match.end()
    if text[end:]:
        yield text[end:]
