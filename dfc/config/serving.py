"""The settings of the server that answers chat completions; `dfc.launch.serve` has a flag for each."""

import dataclasses
from typing import Annotated

from dfc.config.ranges import Count, Length, Range

_Seconds = Annotated[float, Range(0, 1e6, above=True)]


@dataclasses.dataclass(frozen=True)
class ServingConfig:
    """Where a policy is served, to how many at once, and what a client may ask of it.

    Attributes:
      host: the address to listen on; one that other machines reach needs a key.
      port: at that address; 0: any that is free.
      key_variable: the environment variable with the key that clients must send; empty: no key.
      name: of the model, as clients ask for it; empty: the last part of the policy's path.
      slots: conversations at once; every choice of a request is one.
      max_length: tokens of a prompt and its reply together.
      enable_thinking: passed to the chat template where a request does not set it; None: what the policy's run was
        trained with, or the template's own default.
      decode_steps: tokens sampled between two checks for new or cancelled requests, at most.
      queue: requests that may wait for a slot; the next is refused.
      body_bytes: of a request; a larger one is refused.
      deadline: seconds from the arrival of a request until its answer is complete.
      patience: seconds that a client may take to send its request, or to read what is sent to it.
      grace: seconds that answers under way may take after SIGTERM.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Range(0, 65535)] = 8000
    key_variable: str = ""
    name: str = ""
    slots: Annotated[int, Range(1, 100_000)] = 8
    max_length: Length = 2048
    enable_thinking: bool | None = None
    decode_steps: Count = 16
    queue: Annotated[int, Range(0, 100_000)] = 256
    body_bytes: Annotated[int, Range(1000, 10**9)] = 2**20
    deadline: _Seconds = 600.0
    patience: _Seconds = 30.0
    grace: _Seconds = 10.0
