"""A chat in a terminal with a served model, which prints how many prompt tokens each turn had read again.

    python -m dfc.launch.serve --policy=smollm2-135m &
    python benchmarks/serving_chat.py [--url=http://127.0.0.1:8000/v1] [--temperature=0.3] [--seed=0]
        [--max_tokens=60] [< QUESTIONS]

Each line of standard input is a turn; the whole conversation is sent each time, as clients of OpenAI's interface do. At
the end stands how many prompt tokens were read over all turns, beside those of the whole conversation: what a server
that forgets reads, and what has to be read once.
"""

import argparse
import sys
from typing import Any

import openai


def main() -> None:
    """Talks until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--max_tokens", type=int, default=60)
    options = parser.parse_args()
    client = openai.OpenAI(base_url=options.url, api_key="none")
    model = client.models.list().data[0].id
    messages: list[Any] = []
    sent = read = whole = 0
    for line in sys.stdin:
        if not (text := line.strip()):
            continue
        messages.append({"role": "user", "content": text})
        print(f"you: {text}\n{model}: ", end="", flush=True)
        said, usage = "", None
        for part in client.chat.completions.create(
            model=model,
            messages=messages,
            max_tokens=options.max_tokens,
            seed=options.seed,
            temperature=options.temperature,
            stream=True,
            stream_options={"include_usage": True},
        ):
            usage = part.usage or usage
            for choice in part.choices:
                said += choice.delta.content or ""
                print(choice.delta.content or "", end="", flush=True)
        if usage is None or usage.prompt_tokens_details is None:
            sys.exit("the server sends no usage, so nothing can be counted")
        messages.append({"role": "assistant", "content": said})
        cached = usage.prompt_tokens_details.cached_tokens or 0
        sent, read = sent + usage.prompt_tokens, read + usage.prompt_tokens - cached
        whole = usage.prompt_tokens + usage.completion_tokens
        print(f"\n   [{usage.prompt_tokens} prompt tokens, {usage.prompt_tokens - cached} of them read again]")
    print(f"{len(messages) // 2} turns: {sent} prompt tokens sent, {read} read; the whole conversation has {whole}")


if __name__ == "__main__":
    main()
