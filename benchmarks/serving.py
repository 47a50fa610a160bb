"""How fast policies are served: tokens a second beside the engine alone on the same requests, seconds to first tokens.

    python benchmarks/serving.py [--policy=tiny_player] [--requests=256] [--clients=16] [--prompt=128] [--reply=64]
        [--quick]

Requests are streamed from a process of its own by that many clients, each of which sends its next one when an answer
is complete. Prompts are random words of the tokenizer, all different, of about `prompt` tokens; replies have `reply`
tokens (a stop token ends them earlier, on both sides alike: seeds and sampling are the same). The engine alone gets the
same tokens in the same process before and after, through `dfc.rollout.samples.samples`; its programs hold the same
filters. Everything runs once before the clock starts.

With --transformers=FOLDER a quarter of the same requests goes to `transformers serve` with that folder, on a CPU in
float32: another process on the same cores, of --transformers_python, which needs transformers[serving]. It takes no
seeds and samples as the folder's generation_config.json says, so its replies are others; its tokens are counted as they
come. The folder must be the model of --policy.

Prints one line for each side: tokens a second over the wall time of all requests, p50 and p95 to the first token.
Aim: 85 % of the engine alone.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dfc.config import SamplingConfig, ServingConfig
from dfc.players.key_search import Secret
from dfc.rollout.samples import samples
from dfc.tools.serving import requests, server

_USAGE = {"include_usage": True}
Json = dict[str, Any]
Measured = tuple[float, int, list[float]]  # seconds, tokens sampled, seconds to the first text of each


def bodies(policy: server.Policy, count: int, prompt: int, reply: int, *, seed: int) -> list[Json]:
    """Returns that many requests of about `prompt` tokens each."""
    rng, tokenizer = random.Random(seed), policy.served.tokenizer
    found = []
    for number in range(count):
        words = [tokenizer.decode([rng.randrange(tokenizer.vocabulary)]) for _ in range(prompt)]
        text = " ".join(word.strip() for word in words).replace("\N{REPLACEMENT CHARACTER}", "")
        for size in range(len(text), 0, -8):
            body = {"messages": [{"role": "user", "content": text[:size]}], "model": policy.served.name}
            if len(requests.token_ids(requests.parse(json.dumps(body).encode()), tokenizer)) <= prompt:
                break
        found.append(body | {"seed": number, "max_tokens": reply, "stream": True, "stream_options": _USAGE})
    return found


async def _one(port: int, path: str, body: Json) -> tuple[float, int]:
    """Asks once; returns the seconds to the first text, 0 without any, and the tokens of the reply.

    Where the server sends no usage every part counts as one token.
    """
    began, first, count, tokens = time.perf_counter(), 0.0, 0, 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content)
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        part = json.loads(line.removeprefix(b"data: "))
        tokens = (part.get("usage") or {}).get("completion_tokens", tokens)
        if any(choice["delta"].get("content") for choice in part["choices"]):
            count += 1
            first = first or time.perf_counter() - began
    writer.close()
    return first, tokens or count


async def _all(port: int, path: str, work: list[Json], clients: int) -> Measured:
    waiting, firsts, tokens = list(reversed(work)), list[float](), 0

    async def client() -> None:
        nonlocal tokens
        while waiting:
            first, count = await _one(port, path, waiting.pop())
            firsts.extend([first] if first else [])
            tokens += count

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, tokens, firsts


def ask_all(file: str, port: int, path: str, clients: int) -> None:
    """The process of the clients: asks everything in a file, prints seconds and times to the first text as JSON."""
    print(json.dumps(asyncio.run(_all(port, path, json.loads(Path(file).read_text()), clients))))


def clients_of(work: Sequence[Json], port: int, clients: int, path: str = "/v1/chat/completions") -> Measured:
    """Lets a process of clients ask everything; returns its seconds and the times to the first text."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(list(work), file)
        file.flush()
        words = [sys.executable, __file__, "--ask", file.name, str(port), path, str(clients)]
        done = subprocess.run(words, capture_output=True, check=False, text=True)  # noqa: S603 - this script
    if done.returncode:
        raise RuntimeError(f"the clients failed: {done.stderr[-2000:]}")
    seconds, tokens, firsts = json.loads(done.stdout)
    return seconds, tokens, firsts


def alone(policy: server.Policy, work: Sequence[Json], reply: int) -> tuple[float, int]:
    """Returns seconds and sampled tokens of the engine without a server, on the same requests."""
    tokenizer = policy.served.tokenizer
    prompts = [requests.token_ids(requests.parse(json.dumps(body).encode()), tokenizer) for body in work]
    began = time.perf_counter()
    found = samples(
        policy.engine,
        prompts,
        1,
        seed=lambda prompt, _: int(work[prompt]["seed"]),
        max_reply_length=reply,
        sampling=SamplingConfig(),
    )
    seconds = time.perf_counter() - began
    return seconds, sum(int(sample.mask.sum()) for replies in found for sample in replies)


def served(policy: server.Policy, config: ServingConfig, work: Sequence[Json], clients: int) -> Measured:
    """Returns what clients of a server on this engine measure."""
    with server.listen("127.0.0.1", 0) as bound:
        running = server.Server(policy, config, Secret(""))
        thread = threading.Thread(target=running.run, args=([bound],))
        thread.start()
        while not running.started:
            time.sleep(0.01)
        try:
            clients_of(work[:clients], bound.getsockname()[1], clients)
            return clients_of(work, bound.getsockname()[1], clients)
        finally:
            running.leave()
            thread.join()


def beside_transformers(python: str, folder: str, work: Sequence[Json], clients: int, port: int = 8791) -> Measured:
    """Returns what clients of `transformers serve` measure on the same requests."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    command = [python, "-m", "transformers.cli.transformers", "serve", folder]
    words = [*command, "--device", "cpu", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # noqa: S603
    try:
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((process.stderr.read() if process.stderr else b"").decode()[-2000:]) from None
                time.sleep(0.5)
        fields = ("messages", "max_tokens", "stream")
        theirs = [{"model": folder, **{name: body[name] for name in fields}} for body in work]
        clients_of(theirs[:1], port, 1)
        return clients_of(theirs, port, clients)
    finally:
        process.terminate()
        process.wait()


def shown(name: str, tokens: int, seconds: float, firsts: Sequence[float]) -> str:
    """Returns the line of one side."""
    line = f"{name:24s} {tokens / seconds:8.0f} tokens/s  {seconds:7.2f} s"
    if firsts:
        cuts = statistics.quantiles(firsts, n=20)
        line += f"  first token p50 {statistics.median(firsts):.3f} s, p95 {cuts[18]:.3f} s"
    return line


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="tiny_player")
    for name, default in (("requests", 256), ("clients", 16), ("prompt", 128), ("reply", 64), ("slots", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--transformers", default="")
    parser.add_argument("--transformers_python", default=sys.executable)
    parser.add_argument("--ask", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="eight short requests of two clients, to see that it runs")
    args = parser.parse_args()
    if args.quick:
        args.requests, args.clients, args.prompt, args.reply, args.slots = 8, 2, 32, 8, 2
    if args.ask:
        ask_all(args.ask[0], int(args.ask[1]), args.ask[2], int(args.ask[3]))
        return
    config = ServingConfig(slots=args.slots, max_length=args.prompt + args.reply + 64, queue=10_000)
    policy = server.load(args.policy, config)
    work = bodies(policy, args.requests, args.prompt, args.reply, seed=0)
    alone(policy, work[: args.slots], args.reply)
    before, tokens = alone(policy, work, args.reply)
    seconds, ours, firsts = served(policy, config, work, args.clients)
    after, _ = alone(policy, work, args.reply)
    print(
        f"{args.policy}: {args.requests} requests, prompts of about {args.prompt} tokens, replies up to {args.reply}, "
        f"{args.clients} clients, {args.slots} slots; {tokens} tokens sampled"
    )
    print(shown("engine alone, before", tokens, before, ()))
    print(shown("served", ours, seconds, firsts))
    print(shown("engine alone, after", tokens, after, ()))
    print(f"served / alone: {ours / tokens * (before + after) / 2 / seconds:.2f}")
    if args.transformers:
        theirs = beside_transformers(
            args.transformers_python, args.transformers, work[: args.requests // 4], args.clients
        )
        print(shown("transformers serve", theirs[1], theirs[0], theirs[2]))


if __name__ == "__main__":
    main()
