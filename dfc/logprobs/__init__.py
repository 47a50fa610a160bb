"""Log-probabilities of chosen tokens: of the whole vocabulary, or of a few ids that each could be chosen among.

`token_logprobs` never holds many logits at a time; `constrained_logprobs` projects the ids that could be chosen alone.
Arrays in, arrays out: nothing here knows of models, batches or meshes.
"""

from dfc.logprobs.choices import constrained_logprobs
from dfc.logprobs.tiles import VOCAB_CHUNK, WHOLE_BYTES, token_logprobs, token_logprobs_and_entropy

__all__ = [
    "VOCAB_CHUNK",
    "WHOLE_BYTES",
    "constrained_logprobs",
    "token_logprobs",
    "token_logprobs_and_entropy",
]
