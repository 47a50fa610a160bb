"""Chat endpoints that work: what is sent, counted and limited, seen by a real server on a real socket."""

import concurrent.futures
import json
import re
import subprocess
import sys
import threading
import time

import pytest
from chat_server import chat, completion, fails, make, says, serving, threads

from dfc.config import EndpointConfig
from dfc.errors import ConfigError
from dfc.players import endpoint_config
from dfc.players.endpoint import Endpoint
from dfc.players.remote import Remote
from dfc.players.usage import BudgetExceeded

HELLO = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


# ---- what is sent and what comes back -----------------------------------------------------------------------------


def test_a_reply_is_what_the_server_says():
    with serving(says("[4]")) as server, make(server) as endpoint:
        call = endpoint.ask(HELLO)
        assert isinstance(endpoint, Remote)
        assert call.result() == "[4]"
        assert call.done()
        assert call.result() == "[4]"
        assert server.requests[0][1] == "/v1/chat/completions"
        assert server.bodies == [{"model": "m", "messages": HELLO, "temperature": 0.0, "max_tokens": 1024}]


def test_every_sampling_value_is_sent_and_none_is_left_out():
    values = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3, "extra_body": {"top_k": 20}}
    with serving() as server:
        with make(server, **values) as endpoint:
            endpoint.answer(chat("a"))
        with make(server, temperature=None, max_tokens=None) as endpoint:
            endpoint.answer(chat("a"))
        plain = {"model": "m", "messages": chat("a")}
        sampled = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 7, "seed": 3, "top_k": 20}
        assert server.bodies == [plain | sampled, plain]


def test_text_of_every_script_goes_there_and_back():
    text = 'Zug 4: ♜ 日本語 \U0001f600 \u202e \\ " \n\t é'
    with serving() as server, make(server) as endpoint:
        assert endpoint.answer(chat(text)) == text
        assert server.bodies[0]["messages"][0]["content"] == text


def test_a_lone_surrogate_becomes_a_question_mark():
    with serving(says("a\ud800b")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "a?b"


def test_a_key_is_sent_and_none_where_there_is_none(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of-another-service")
    monkeypatch.setenv("MY_KEY", " key-123456789\n")
    with serving() as server:
        with make(server, key_variable="MY_KEY") as endpoint:
            endpoint.answer(HELLO)
        with make(server) as endpoint:
            endpoint.answer(HELLO)
        assert server.headers[0]["authorization"] == "Bearer key-123456789"
        assert "authorization" not in server.headers[1]
        assert "of-another-service" not in str(server.headers)


@pytest.mark.parametrize("key", ["", "key-123456789"])
def test_other_variables_of_the_environment_reach_no_server(monkeypatch, key):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-of-mine")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Token: of-a-gateway\nAuthorization: Bearer of-another-service")
    monkeypatch.setenv("MY_KEY", key)
    with serving() as server, make(server, key_variable="MY_KEY" if key else "") as endpoint:
        endpoint.answer(HELLO)
        sent = server.headers[0]
        assert sent.get("authorization") == (f"Bearer {key}" if key else None)
        assert "of-mine" not in str(sent)
        assert "x-token" not in sent


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(says("direct")) as server, make(server) as endpoint:
        assert endpoint.answer(HELLO) == "direct"


def test_what_a_server_wants_remembered_is_not_sent_back():
    def remembers(handler, _):
        handler.send(200, json.dumps(completion("x")).encode(), {"Set-Cookie": "who=you; Path=/"})

    with serving(usual=remembers) as server, make(server) as endpoint:
        assert [endpoint.answer(chat(text)) for text in "ab"] == ["x", "x"]
        assert "cookie" not in server.headers[1]


# ---- several at once ----------------------------------------------------------------------------------------------


def test_no_more_requests_are_under_way_than_allowed():
    with serving(usual=says("x", after=0.05)) as server, make(server, concurrency=3) as endpoint:
        calls = [endpoint.ask(chat(str(n))) for n in range(9)]
        assert [call.result() for call in calls] == ["x"] * 9
        assert server.most == 3


def test_calls_end_in_any_order_and_a_wait_ends_with_the_first():
    with serving() as server, make(server) as endpoint:
        go_on = threading.Event()

        def reply(handler, body):
            content = body["messages"][0]["content"]
            assert content != "slow" or go_on.wait(60)
            return says(content)(handler, body)

        server.usual = reply
        slow, quick = endpoint.ask(chat("slow")), endpoint.ask(chat("quick"))
        concurrent.futures.wait([slow, quick], return_when=concurrent.futures.FIRST_COMPLETED)
        assert (slow.done(), quick.done()) == (False, True)
        concurrent.futures.wait([slow], timeout=0.02)
        assert not slow.done()
        go_on.set()
        assert (slow.result(), quick.result()) == ("slow", "quick")


def test_threads_may_share_an_endpoint():
    with serving() as server, make(server, concurrency=8) as endpoint:
        found = {}

        def player(n):
            found[n] = [endpoint.answer(chat(f"{n}.{k}")) for k in range(5)]

        players = [threading.Thread(target=player, args=(n,)) for n in range(6)]
        for thread in players:
            thread.start()
        for thread in players:
            thread.join()
        assert found == {n: [f"{n}.{k}" for k in range(5)] for n in range(6)}
        assert endpoint.report()["replies"] == 30


# ---- counts and budget --------------------------------------------------------------------------------------------


def test_ids_and_money_are_the_servers_counts_times_the_prices():
    used = {"usage": {"prompt_tokens": 1000, "completion_tokens": 200}}
    with serving(usual=says("x", **used)) as server:
        with make(server, input_price=2.0, output_price=8.0) as endpoint:
            endpoint.answer(chat("a"))
            endpoint.answer(chat("b"))
            report = endpoint.report()
        assert (report["input_tokens"], report["output_tokens"], report["estimated_replies"]) == (2000, 400, 0)
        assert report["money"] == pytest.approx((2000 * 2.0 + 400 * 8.0) / 1e6)
        assert json.loads(json.dumps(report)) == report


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": "7", "completion_tokens": 1},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 10**400, "completion_tokens": 1},
        [1],
    ],
)
def test_counts_the_server_does_not_send_are_estimated_and_flagged(usage):
    with serving(says("x" * 41, usage=usage)) as server, make(server) as endpoint:
        endpoint.answer(chat("y" * 80))
        report = endpoint.report()
        assert (report["input_tokens"], report["output_tokens"], report["estimated_replies"]) == (24, 11, 1)


def test_a_spent_budget_of_ids_stops_every_further_request():
    with serving() as server, make(server, budget_tokens=20) as endpoint:
        assert endpoint.answer(chat("a")) == "a"  # 13 ids
        assert endpoint.answer(chat("b")) == "b"  # 26: under way when the budget was reached
        spent = r"m: 26 of a budget of 20 tokens are spent \(20 tokens in, 6 out, 2 requests\)"
        match = rf"{spent}.*raise EndpointConfig.budget_tokens"
        for text in "cd":
            with pytest.raises(BudgetExceeded, match=match):
                endpoint.answer(chat(text))
        assert len(server.requests) == 2
        assert (endpoint.report()["failures"], endpoint.report()["calls"]) == (2, 4)


def test_calls_under_way_when_the_budget_is_spent_finish_and_queued_ones_do_not():
    with serving(usual=says("x", after=0.2)) as server:
        values = {"budget_money": 1e-6, "input_price": 1.0, "concurrency": 3}
        with make(server, **values) as endpoint:
            calls = [endpoint.ask(chat(str(n))) for n in range(8)]
            assert [call.result() for call in calls[:3]] == ["x"] * 3
            for call in calls[3:]:
                with pytest.raises(BudgetExceeded, match=r"\de-05 of a budget of 1e-06 .*EndpointConfig.budget_money"):
                    call.result()
            assert len(server.requests) == 3
            assert endpoint.report()["money"] == pytest.approx(30e-6)


def test_a_spent_budget_does_not_stop_replies_from_the_cache(tmp_path):
    with serving() as server, make(server, budget_tokens=1, cache=str(tmp_path)) as endpoint:
        assert endpoint.answer(chat("a")) == "a"
        assert endpoint.answer(chat("a")) == "a"
        with pytest.raises(BudgetExceeded):
            endpoint.answer(chat("b"))


def test_a_report_accounts_for_every_call(tmp_path):
    script = (says("x"), fails(500), says("y"), fails(400))
    with serving(*script) as server, make(server, cache=str(tmp_path)) as endpoint:
        endpoint.answer(chat("a"))
        endpoint.answer(chat("a"))
        endpoint.answer(chat("b"))
        call = endpoint.ask(chat("c"))
        with pytest.raises(Exception, match="400"):
            endpoint.answer(chat("c"))
        assert "400" in str(call.exception())
        report = endpoint.report()
        assert report["calls"] == 5
        assert report["calls"] == report["replies"] + report["cache_hits"] + report["failures"]
        assert (report["requests"], report["retries"], report["model"]) == (len(server.requests), 1, "m")


# ---- a play -------------------------------------------------------------------------------------------------------


def test_an_endpoint_plays_in_the_other_seat(tmp_path):
    import jax
    import jax.numpy as jnp
    import numpy as np

    from dfc.config import RolloutConfig, SamplingConfig
    from dfc.inference.engine import Engine
    from dfc.models.chat import ChatTokenizer
    from dfc.models.config import DecoderConfig
    from dfc.models.huggingface import resolve
    from dfc.models.transformer import abstract_params
    from dfc.rollout.runner import EpisodeSpec, RolloutRunner

    def first_free(handler, body):
        seen = " ".join(m["content"] for m in body["messages"] if "[" in m["content"])
        taken = {m["content"] for m in body["messages"] if m["role"] == "assistant"}
        taken.update(re.findall(r"Opponent plays (\[\d\])", seen))
        says(next(f"[{cell}]" for cell in range(9) if f"[{cell}]" not in taken))(handler, body)

    tokenizer = ChatTokenizer.load(resolve("tiny_player"))
    sizes = {"width": 8, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 8, "feed_forward": 8}
    further = {"rope_theta": 1e4, "norm_epsilon": 1e-5, "qkv_bias": False, "tied_embedding": True}
    config = DecoderConfig(vocabulary=tokenizer.vocabulary, **sizes, **further)
    params = jax.tree.map(lambda leaf: jnp.asarray(np.full(leaf.shape, 0.1, np.float32)), abstract_params(config))
    rollout = RolloutConfig(slots=2, max_length=256, max_reply_length=8, stop=("]",), legal_only=True)
    stop = tokenizer.stop_token_ids(rollout.stop)
    values = {"prefill_buckets": (32,), "decode_steps": 8}
    engine = Engine(config, params, slots=2, max_length=256, stop_token_ids=stop, sampling=SamplingConfig(), **values)
    specs = [EpisodeSpec("TicTacToe-v0", {}, n, n % 2, n, 100 + n) for n in range(2)]
    with serving(fails(500), fails(429, b"", Retry_After="0.1"), usual=first_free) as server:
        played = []
        for _ in range(2):
            with make(server, cache=str(tmp_path)) as endpoint:
                found = RolloutRunner(rollout, tokenizer, engine, opponent=endpoint, opponent_name="m").play(specs)
                played.append([episode.record() for episode in found])
                assert not any(episode.failed for episode in found)
                assert all(episode.outcome in ("win", "draw", "loss") for episode in found)
                report = endpoint.report()
        assert played[0] == played[1]
        assert (report["requests"], report["cache_hits"]) == (0, report["calls"])  # the second time costs nothing


# ---- the end, and what is refused at the beginning -----------------------------------------------------------------


def test_nothing_is_left_after_the_end():
    before = threads()
    with serving() as server:
        endpoint = make(server)
        endpoint.answer(HELLO)
        assert threads() > before
        endpoint.close()
        endpoint.close()
        assert threads() == before
        with pytest.raises(Exception, match="the endpoint is closed; make a new one"):
            endpoint.ask(HELLO)
        forgotten = make(server)
        forgotten.answer(HELLO)
        del forgotten
        end = time.monotonic() + 60
        while threads() != before and time.monotonic() < end:
            time.sleep(0.01)
        assert threads() == before


def test_closing_an_endpoint_that_was_never_asked_does_nothing():
    make_one = Endpoint("https://example.invalid/v1", "m")
    assert make_one.report()["calls"] == 0
    make_one.close()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"base_url": "localhost:8000/v1"}, "base_url='localhost:8000/v1': must be an http or https address"),
        ({"base_url": 7}, "base_url=7: must be an http"),
        ({"base_url": "http://[::1/v1"}, "base_url: Invalid IPv6"),
        ({"base_url": "http://h:port/v1"}, "base_url: Port could not"),
        ({"base_url": "http://h/v1/chat/completions"}, "must end before '/chat/completions'"),
        ({"base_url": "https://h/v1?a=b"}, "must hold no user name"),
        ({"model": ""}, "model='': must be the name the server knows"),
        ({"temperature": 2.5}, "temperature=2.5: must be at least 0 and at most 2"),
        ({"top_p": 0}, "top_p=0: must be above 0 and at most 1"),
        (
            {"max_tokens": 0.5},
            "max_tokens=0.5 (float): must be a whole number, at least 1 and at m",
        ),
        ({"concurrency": 0}, "concurrency=0: must be at least 1 and at most 1,000"),
        ({"timeout": float("nan")}, "timeout=nan (float): must be a number, above 0"),
        ({"retries": True}, "retries=True (bool): must be a whole number"),
        ({"timeout": None}, "timeout=None (NoneType): must be a number, above 0"),
        ({"cache": 7}, "cache=7 (int): must be text"),
        ({"budget_money": 1.0}, "budget_money=1.0: needs input_price or output_price above 0"),
        ({"extra_body": {"stream": True}}, "extra_body['stream']: is set by the endpoint itself"),
        ({"extra_body": {"x": {1}}}, "extra_body: must be a mapping of JSON values"),
        ({"extra_body": [1]}, "extra_body: must be a mapping of JSON values"),
        ({"allow_plain_http": "no"}, "allow_plain_http='no' (str): must be true or false"),
        (
            {"base_url": "http://example.org/v1", "key_variable": "K"},
            "would send the key unencrypted to another machine",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(values, message):
    place = {"base_url": "http://localhost/v1", "model": "m"}
    place |= {name: value for name, value in values.items() if name in place}
    config = EndpointConfig(**{name: value for name, value in values.items() if name not in place})
    with pytest.raises(ConfigError, match=re.escape(message)):
        Endpoint(**place, config=config)


def test_a_section_of_a_configuration_holds_any_values_and_says_what_is_wrong_with_them():
    assert endpoint_config.problems(EndpointConfig()) == []
    config = EndpointConfig(key_variable="sk-secret", temperature="hot", timeout=0, extra_body=None)
    fields = ["temperature", "timeout", "key_variable", "extra_body"]
    assert [re.match(r"\w+", problem)[0] for problem in endpoint_config.problems(config)] == fields
    assert "secret" not in " ".join(endpoint_config.problems(config))


def test_a_configuration_can_contain_it_without_the_client_or_jax():
    script = "import sys, dfc.players.endpoint_config; print({'jax', 'openai', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)  # noqa: S603 - a fixed command
    assert done.stdout == "set()\n"


def test_a_run_imports_the_client_when_it_makes_an_endpoint():
    script = (
        "import sys, dfc.methods.divide_fuse_conquer\n"
        "from dfc.players.endpoint import Endpoint\n"
        "print('openai' in sys.modules)\n"
        "Endpoint('http://localhost:1/v1', 'm')\n"
        "print('openai' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)  # noqa: S603 - a fixed command
    assert done.stdout == "False\nTrue\n"


@pytest.mark.parametrize(
    ("name", "parts"), [("http://h/v1#org/m#2", ("http://h/v1", "org/m#2")), ("http://h/v1", ("http://h/v1", ""))]
)
def test_a_name_says_where_and_which_model(name, parts):
    assert endpoint_config.split_name(name) == parts


def test_all_problems_are_reported_together():
    with pytest.raises(ConfigError) as raised:
        Endpoint("ftp://x", "", EndpointConfig(retries=-1, backoff=-1.0))
    assert len(raised.value.problems) == 4


@pytest.mark.parametrize(
    ("url", "values"),
    [
        ("http://example.org/v1", {}),
        ("https://example.org/v1", {"key_variable": "K"}),
        ("http://example.org/v1", {"key_variable": "K", "allow_plain_http": True}),
        ("http://127.0.0.1:8000", {"key_variable": "K"}),
        ("http://[::1]:8000/v1/", {"key_variable": "K"}),
        ("http://LOCALHOST:8000/v1", {"key_variable": "K"}),
    ],
)
def test_addresses_that_make_sense_are_taken(url, values):
    endpoint_config.check(url, "m", EndpointConfig(**values))
