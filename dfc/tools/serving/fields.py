"""The fields of a chat completion's body that are not read: those that change nothing, those that are refused.

OpenAI's fields and vLLM's extra ones. A refused field passes with the values that leave the answer as it is, so that a
client that writes down every default of either API is answered.
"""

import json
from collections.abc import Mapping

from dfc.errors import shown

_CHANGES_NOTHING = {"metadata", "prompt_cache_key", "safety_identifier", "service_tier", "session_id", "user"}
_Values = tuple[object, ...]
_NULL: _Values = (None,)
_NO_LIST: _Values = (None, [])
_NO_OBJECT: _Values = (None, {})
_OFF, _ON, _ANY_FLAG = (None, False), (None, True), (None, True, False)
# Why a field is refused, and its values that leave the answer as it is.
_REFUSED: Mapping[str, Mapping[str, _Values]] = {
    "no penalty or bias is added to the model's logits": {
        "frequency_penalty": (None, 0),
        "presence_penalty": (None, 0),
        "repetition_penalty": (None, 1),
        "logit_bias": _NO_OBJECT,
        "logits_processors": _NO_LIST,
        "allowed_token_ids": _NULL,
        "bad_words": _NO_LIST,
        "watermarking": _OFF,
    },
    "replies are sampled, not searched for": {
        "use_beam_search": _OFF,
        "best_of": (None, 1),
        "length_penalty": (None, 1),
        "early_stopping": _OFF,
    },
    "a reply ends with the model's own end of a turn, at a text of `stop`, or at its limit": {
        "min_tokens": (None, 0),
        "ignore_eos": _OFF,
        "stop_token_ids": _NO_LIST,
        "include_stop_str_in_output": _OFF,
        "repetition_detection": _NULL,
        "thinking_token_budget": _NULL,
    },
    "a reply is not held to a form": {
        "response_format": (None, {"type": "text"}),
        "structured_outputs": _NULL,
        "guided_json": _NULL,
        "guided_regex": _NULL,
        "guided_choice": _NULL,
        "guided_grammar": _NULL,
        "guided_decoding_backend": _NULL,
        "guided_whitespace_pattern": _NULL,
    },
    "there are no tools": {
        "tools": _NO_LIST,
        "tool_choice": (None, "none", "auto"),
        "parallel_tool_calls": _ANY_FLAG,
        "functions": _NO_LIST,
        "function_call": (None, "none"),
        "web_search_options": _NULL,
        "documents": _NO_LIST,
    },
    "the prompt is the conversation in the model's own chat template, whole": {
        "echo": _OFF,
        "add_generation_prompt": _ON,
        "continue_final_message": _OFF,
        "add_special_tokens": _OFF,
        "chat_template": _NULL,
        "truncate_prompt_tokens": _NULL,
        "truncation_side": (None, "left", "right"),  # has no effect without the preceding field
        "reasoning_effort": _NULL,
        "verbosity": _NULL,
        "prediction": _NULL,
    },
    "prompts and replies are text only": {
        "audio": _NULL,
        "modalities": (None, ["text"]),
        "media_io_kwargs": _NO_OBJECT,
        "mm_processor_kwargs": _NO_OBJECT,
        "return_mm_kwargs": _ANY_FLAG,
    },
    "an answer holds the text without special tokens, and log-probabilities of the sampled tokens only": {
        "skip_special_tokens": _ON,
        "spaces_between_special_tokens": _ANY_FLAG,  # there are none in the text
        "include_reasoning": _ON,
        "top_logprobs": (None, 0),
        "prompt_logprobs": _NULL,
        "logprob_token_ids": _NULL,
        "return_token_ids": _OFF,
        "return_tokens_as_token_ids": _OFF,
        "return_token_offsets": _OFF,
        "return_prompt_text": _OFF,
        "routed_experts_prompt_start": (None, 0),
    },
    "all requests are served alike, in the order in which they come, and nothing is stored": {
        "priority": (None, 0),
        "request_id": _NULL,
        "cache_salt": _NULL,
        "kv_transfer_params": _NO_OBJECT,
        "ec_transfer_params": _NO_OBJECT,
        "stream_interval": _NULL,
        "vllm_xargs": _NO_OBJECT,
        "store": _OFF,
        "moderation": _NULL,
    },
}
_BY_NAME = {name: (why, neutral) for why, names in _REFUSED.items() for name, neutral in names.items()}


def problem(name: str, value: object) -> tuple[str, str] | None:
    """Returns why a field of a body is refused, as OpenAI's word for it and a sentence; None: it is not."""
    if name in _CHANGES_NOTHING:
        return None
    if name not in _BY_NAME:
        return "unknown_parameter", f"{shown(name)}: there is no such field here"
    why, neutral = _BY_NAME[name]
    if any(_same(value, passes) for passes in neutral):
        return None
    expected = " or ".join(json.dumps(passes) for passes in neutral)
    return "unsupported_parameter", f"{name}: expected {expected}, got {shown(value)}; {why}, so leave it out"


def _same(value: object, neutral: object) -> bool:
    """Whether two JSON values are equal; true is no number."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
