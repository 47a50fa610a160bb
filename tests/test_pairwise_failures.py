"""A judge that gives no verdict, is down, or refuses a pair: what stops a run, what is asked again, what is counted."""

import json

import pytest
from answer_runs import config_of, judging, longer, many, outputs, parts, run
from chat_server import fails, sends, serving

from dfc.evaluation import pairwise
from dfc.players.remote import PlayerError


def test_a_judge_without_a_verdict_is_named_after_64_pairs_and_the_run_resumes(tmp_path):
    file, files = many(tmp_path)
    own = {"outputs": files, "baseline": "theirs"}
    with serving(usual=judging(lambda *_: "I would rather not say.")) as server:
        config = config_of(file, server, policies=(), pairwise=own)
        with pytest.raises(
            PlayerError, match=r"pairwise.judge='http.*not one verdict on the first 64 pairs.*rather not"
        ):
            run(config, tmp_path / "run")
        assert len(server.requests) == 128
        server.usual = judging(longer)
        records = run(config, tmp_path / "run")
    assert len(records) == 150
    assert all(one["outcome"] for one in records)


def test_equal_answers_do_not_hide_a_judge_without_verdicts(tmp_path):
    file, files = many(tmp_path)
    same = [f"theirs {n}" if n % 4 else f"other {n}" for n in range(150)]  # 38 differ
    files["mine"] = outputs(tmp_path / "same.json", same)
    files["third"] = outputs(tmp_path / "third.json", [*same[:-1], "x"])
    with serving(usual=judging(lambda *_: "Verdict: A or B")) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        with pytest.raises(PlayerError, match="not one verdict on the first 70 pairs"):
            run(config, tmp_path / "run")


def test_a_judge_that_fails_later_ends_the_run_and_what_is_missing_is_asked_again(tmp_path):
    file, files = many(tmp_path, 130)
    own = {"outputs": files, "baseline": "theirs"}

    def down(handler, _):
        handler.send(500, b"")

    with serving() as server:
        config = config_of(file, server, policies=(), pairwise=own)
        server.usual = lambda *given: (down if int(parts(given[1])[0][4:-1]) >= 64 else judging(longer))(*given)
        with pytest.raises(PlayerError, match="no reply on any of the last 64 pairs"):
            run(config, tmp_path / "run")
        server.usual, before = judging(longer), len(server.requests)
        records = run(config, tmp_path / "run")
        assert len(server.requests) - before == 2 * (130 - 64)
    found = pairwise.by_dataset(records, ["mine"], ["all"])["mine", "overall"]
    assert (found.wins + found.ties + found.losses, found.unjudged) == (130, 0)


def test_a_judge_that_is_down_is_asked_again_until_it_replies(tmp_path):
    file, files = many(tmp_path, 3)

    def down(handler, _):
        handler.send(500, b"")

    with serving(usual=down) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        for _ in range(3):
            with pytest.raises(PlayerError, match=r"no reply on any of the last 3 pairs.*status 500"):
                run(config, tmp_path / "run")
        # Replies without a verdict count once they have come twice.
        server.usual = judging(lambda *_: "no")
        with pytest.raises(PlayerError, match="all of the last 3 comparisons failed"):
            run(config, tmp_path / "run")
        assert not (tmp_path / "run" / "results.json").exists()
        server.usual = judging(longer)
        assert [one["outcome"] for one in run(config, tmp_path / "run")[-3:]] == ["loss"] * 3


def test_a_pair_without_a_reply_leaves_a_run_open_and_is_asked_about_again(tmp_path, capsys):
    file, files = many(tmp_path, 3)

    def partly(handler, body):
        if parts(body)[0] == "Say 1.":
            handler.send(500, b"")
        else:
            judging(longer)(handler, body)

    with serving(usual=partly) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        assert [one["outcome"] for one in run(config, tmp_path / "run")] == ["loss", None, "loss"]
        assert "1 comparisons are without a reply of the judge" in capsys.readouterr().out
        assert json.loads((tmp_path / "run" / "results.json").read_text())["win_rates"][0]["unjudged"] == 1
        # Alone it stops nothing either, as the judge has judged others.
        assert run(config, tmp_path / "run")[-1]["outcome"] is None
        server.usual, before = judging(longer), len(server.requests)
        assert run(config, tmp_path / "run")[-1]["outcome"] == "loss"
        assert len(server.requests) - before == 2
        run(config, tmp_path / "run")
        assert len(server.requests) - before == 2
    assert json.loads((tmp_path / "run" / "results.json").read_text())["win_rates"][0]["unjudged"] == 0


# ---- pairs that are refused ------------------------------------------------------------------------------------------

WORDS = "cannot \x1b[2J\ntell " + "x" * 400
NO_TEXT = {"choices": [{"message": {"role": "assistant", "content": None}, "finish_reason": "content_filter"}]}
USED_UP = {"choices": [{"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}]}
REFUSALS = {
    "status 400": (fails(400, {"error": {"message": WORDS}}), "status 400: cannot"),
    "status 413": (fails(413, b"too long"), "status 413: too long"),
    "no text": (sends(json.dumps(NO_TEXT).encode()), "the answer has no text"),
    "no room for a verdict": (sends(json.dumps(USED_UP).encode()), "the limit of tokens was used up"),
}


def refusing(act, *queries):
    """A judge whose server answers some queries in its own way."""
    return lambda handler, body: (act if parts(body)[0] in queries else judging(longer))(handler, body)


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_pair_that_the_judge_always_refuses_counts_as_not_judged_and_the_run_ends(tmp_path, capsys, kind):
    act, said = REFUSALS[kind]
    file, files = many(tmp_path, 4)
    with serving(usual=refusing(act, "Say 1.", "Say 3.")) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        records = run(config, tmp_path / "run")
        asked = len(server.requests)
        shown = capsys.readouterr().out
        run(config, tmp_path / "run")
        assert len(server.requests) == asked
    assert [one["outcome"] for one in records] == ["loss", None, "loss", None]
    (warning,) = (line for line in shown.splitlines() if line.startswith("warning"))
    assert "the judge refuses 2 of 4 pairs" in warning
    assert "mine beside theirs, instruction 1 (from 0)" in warning
    assert said in warning
    assert warning.isprintable()
    assert len(warning) < 1000
    assert "x" * 400 not in warning
    assert "without a reply" not in shown
    assert (tmp_path / "run" / "finished.json").exists()
    (rate, *_) = json.loads((tmp_path / "run" / "results.json").read_text())["win_rates"]
    assert (rate["losses"], rate["unjudged"]) == (2, 2)


def test_pairs_that_are_all_that_is_left_are_refused_without_an_error(tmp_path):
    """The first start judges one pair, while the server is down for others; the second one has refusals only."""
    file, files = many(tmp_path, 3)
    with serving(usual=refusing(fails(500), "Say 1.", "Say 2.")) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        run(config, tmp_path / "run")
        assert not (tmp_path / "run" / "finished.json").exists()
        server.usual = refusing(fails(400), "Say 1.", "Say 2.")
        records = run(config, tmp_path / "run")
    assert (tmp_path / "run" / "finished.json").exists()
    assert [bool(one.get("refused")) for one in records] == [False] * 3 + [True] * 2


def test_a_pair_that_is_refused_in_one_order_and_late_in_the_other_is_asked_about_again(tmp_path):
    file, files = many(tmp_path, 2)

    def act(handler, body):
        fails(400 if parts(body)[1].startswith("mine") else 503)(handler, body)

    with serving(usual=refusing(act, "Say 1.")) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        assert "refused" not in run(config, tmp_path / "run")[-1]
        assert not (tmp_path / "run" / "finished.json").exists()
        server.usual = judging(longer)
        assert run(config, tmp_path / "run")[-1]["outcome"] == "loss"


def test_a_server_that_refuses_every_pair_stops_the_run_with_its_words(tmp_path):
    """As one does that does not know a setting: what it says of the first pair it would say of all."""
    file, files = many(tmp_path, 3)
    with serving(usual=fails(400, {"error": {"message": "no such temperature"}})) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        with pytest.raises(PlayerError, match=r"all of the last 3 comparisons failed.*no such temperature"):
            run(config, tmp_path / "run")
        server.usual = judging(longer)
        assert [one["outcome"] for one in run(config, tmp_path / "run")[-3:]] == ["loss"] * 3


@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
def test_who_asks_or_a_server_that_is_down_is_nothing_of_the_pair(tmp_path, status):
    """Equal answers, about which nobody is asked, do not hide it; the pairs are asked about again."""
    file, files = many(tmp_path, 3)
    files["mine"] = outputs(tmp_path / "mine.json", ["mine", "theirs 1", "mine"])
    with serving(usual=fails(status)) as server:
        config = config_of(file, server, policies=(), pairwise={"outputs": files, "baseline": "theirs"})
        for _ in range(3):
            with pytest.raises(PlayerError, match=rf"no reply on any of the last 2 pairs.*status {status}"):
                run(config, tmp_path / "run")
        server.usual = judging(longer)
        records = run(config, tmp_path / "run")
    assert (tmp_path / "run" / "finished.json").exists()
    assert sum(one["identical"] for one in records) == 1
