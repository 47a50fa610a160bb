"""The page of a run against figures worked out by hand."""

import json
import re

import numpy as np
import pytest
from run_files import GAMES, MATCHES, NASTY, Page, files, match, metric_line, play, write

from dfc.config import AnswerRewardConfig, EvaluateTasks, LanguageSelfPlay
from dfc.errors import RunFolderError
from dfc.evaluation.statistics import difference_interval, wilson_interval
from dfc.games.replay import replay
from dfc.report import __main__ as command
from dfc.report import run_page
from dfc.report.tables import NOTHING, Table
from dfc.runs.run_folder import config_json


def built(folder, content):
    for name, value in content.items():
        write(folder, name, value)
    path = run_page.build(folder)
    assert path == folder / "report.html"
    assert sorted(p.name for p in folder.iterdir()) == sorted([*content, "report.html"])  # no temporary file is left
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture
def build(tmp_path):
    return lambda content: built(tmp_path, content)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def page(folder):
    return built(folder, files())


def interval(low, high):
    return f"{low:.2f} to {high:.2f}"


def test_the_outcome_sentence_pools_the_games_of_both_policies(page):
    # final: 90 + 70 wins of 200 for two; for one 98 of 200, however the other 102 ended.
    assert "The policy got better. Against the initial policy it scores 0.80 per game" in page.text
    assert "Solved: TowerOfHanoi-v0 20 of 200 → 98 of 200. A win is worth 1" in page.text
    _, low, high = wilson_interval(100, 200)
    assert f"in its place scores 0.50 ({interval(low, high)})" in page.text
    assert "The score pools 1 two-player game, played 200 times by the final policy and 200 times by the" in page.text
    assert "2 of 2 improved clearly" in page.text


def test_the_result_table_holds_hand_computed_scores(page):
    header, row = page.table("Game", "Initial policy")[:2]
    assert header[3:5] == ["Change", "Change without forfeits"]
    before, after = wilson_interval(100, 200), wilson_interval(160, 200)
    _, low, high = difference_interval(160, 200, 100, 200)
    assert row[0] == "TicTacToe-v0"
    assert row[1] == f"0.50 {interval(*before[1:])}"
    assert row[2] == f"0.80 {interval(*after[1:])}"
    assert row[3] == f"+0.30 +{low:.2f} to +{high:.2f}"
    # 100 of 170 games against 143 of 183.
    _, low, high = difference_interval(143, 183, 100, 170)
    assert row[4] == f"+{143 / 183 - 100 / 170:.2f} +{low:.2f} to +{high:.2f}"


def test_the_match_table_shows_forfeits_and_truncated_games_apart(page):
    rows = page.table("Game", "Policy", "Opponent", "Seat")
    by_key = {tuple(row[:4]): row[4:] for row in rows[1:]}
    assert len(by_key) == 7
    _, low, high = wilson_interval(90, 100)
    expected = ["100", "90", "0", "10", "·", "17", "·", f"0.90 {interval(low, high)}", "1.5 %", "0.0 %", "3.5"]
    assert by_key["TicTacToe-v0", "final", "initial", "0"] == expected
    assert by_key["TicTacToe-v0", "initial", "initial", "0"][6] == "30"
    assert by_key["TowerOfHanoi-v0", "final", "–", "0"][:5] == ["200", "98", "3", "99", "·"]  # noqa: RUF001 - the dash and quotes the page shows


def test_the_stage_table_puts_games_against_stages(page):
    header, *rows = page.table("Game", "base")
    assert header == ["Game", "base", "divide g1", "final"]
    assert rows[0] == ["TicTacToe-v0", "0.50", "0.60", "0.80"]
    assert rows[1] == ["TowerOfHanoi-v0", "0.10", "–", f"{98 / 200:.2f}"]  # noqa: RUF001 - the dash and quotes the page shows
    assert rows[2] == ["Mean score, two players", "0.50", "0.60", "0.80"]
    assert rows[3] == ["Mean share solved, one player", "0.10", "–", "0.49"]  # noqa: RUF001 - as above


def test_updates_are_counted_once_after_a_restart(page):
    row = page.table("Stage", "Iterations")[1]
    assert row == ["1 divide g1", "3", "2", "1", "0.25", "0.44", "6.0 s"]


def test_groups_show_what_was_measured(page):
    _, low, high = wilson_interval(43, 100)
    assert f"43 of 100 {interval(low, high)}" in page.text
    assert "fixed start · winnable" in page.text


def test_settings_and_options_are_shown_against_their_defaults(page):
    assert page.table("Setting", "This run", "Default")[1:] == [
        ["name", "trial <b>run</b>", "run"],
        ["seed", "11", "0"],
    ]
    assert page.table("Game", "Options that differ from the id’s defaults")[1:] == [  # noqa: RUF001 - the dash and quotes the page shows
        ["TicTacToe-v0", "show_board yes instead of no"],
        ["TowerOfHanoi-v0", "none"],
    ]


def settings_of(config):
    """The table of settings that differ, and the keys that are bold among all settings."""
    parts = run_page._configuration(config)
    (differing,) = [part for part in parts if isinstance(part, Table) and part.title.startswith("Settings that differ")]
    every = re.findall(r"<code>([^<]*)</code></t[dh]>\s*<td[^>]*>\s*<b>", parts[-1])
    rows = [tuple(re.sub("<[^>]*>", "", str(cell)) for cell in row) for row in differing.rows]
    return rows, every


def test_entries_of_a_mapping_differ_from_a_default_that_lacks_them():
    sources = LanguageSelfPlay(reward=AnswerRewardConfig(sources={"formats": 0.5, "families": 1.0}))
    other, bold = settings_of(config_json(sources))
    assert sorted(other) == [("reward.sources.families", "1", NOTHING), ("reward.sources.formats", "0.5", NOTHING)]
    assert sorted(bold) == ["reward.sources.families", "reward.sources.formats"]


def test_an_entry_of_the_default_that_a_run_lacks_is_a_difference():
    kept = EvaluateTasks(tasks_of={"wordle": 5}, learner_roles={"clem_taboo": "guesser"})
    other, bold = settings_of(config_json(kept))
    expected = [
        ("learner_roles.clem_taboo", "guesser", NOTHING),
        ("tasks_of.bandit", NOTHING, "40"),
        ("tasks_of.wordle", "5", NOTHING),
    ]
    assert sorted(other) == expected
    assert sorted(bold) == [key for key, *_ in expected]
    assert settings_of(config_json(EvaluateTasks()))[1] == []


def test_a_mapping_that_an_earlier_version_did_not_have_is_no_difference():
    stored = config_json(EvaluateTasks())
    del stored["tasks_of"]
    assert settings_of(stored)[1] == []


@pytest.mark.parametrize(
    ("method", "opponent", "said"),
    [
        ("divide_fuse_conquer", "itself", "Divide-Fuse-Conquer on 2 games|24 iterations for each group and 32 after"),
        ("grpo", "pool", "Reinforcement learning on 2 games|: 32 iterations. In each|one of its past policies"),
        ("naive_single", "strong", "a policy for every game, on 2 games|32 iterations for each game. In|are strong"),
        ("imitate_wins", "http://h/v1#<b>", "Imitation of won games on 2 games|http://h/v1#<b>. An update"),
    ],
)
def test_the_setup_names_method_and_opponent(build, method, opponent, said):
    content = files()
    settings = {"method": method, "opponent": opponent, "divide_iterations": 24, "conquer_iterations": 32}
    if method == "grpo":  # which has no method, and iterations of one kind
        settings = {"recipe": "grpo", "opponent": opponent, "iterations": 32}
        content["config.json"].pop("conquer_iterations")
        content["config.json"].pop("method")
    content["config.json"] |= settings
    text = build(content).text
    for part in said.replace("are strong", "opponent is strong").split("|"):
        assert part in text


def test_curves_have_a_panel_per_game_and_place_the_points_right(page):
    panels = {a["aria-label"]: a["data-points"] for tag, a in page.tags if tag == "svg" and "data-points" in a}
    label = "Win rate, TicTacToe-v0: 3 iterations, first 0.25, last 0.438"
    points = np.array([point.split(" ") for point in panels[label].split(";")], float)
    np.testing.assert_array_equal(points[:, 3], [1, 2, 3])
    np.testing.assert_allclose(points[:, 4], [0.25, 0.5, 0.4375])
    np.testing.assert_allclose(np.diff(points[:, 0]), np.diff(points[:, 0])[0], atol=0.11)
    slope = np.diff(points[:2, 1]) / 0.25  # higher values lie higher: smaller y
    np.testing.assert_allclose(points[2, 1], points[1, 1] - 0.0625 * slope, atol=0.11)
    assert slope < 0
    assert sum(label.startswith("Response length") for label in panels) == 2
    marks = [a["class"] for tag, a in page.tags if tag == "line" and a.get("class") in ("accepted", "rejected")]
    assert marks == ["accepted", "accepted", "rejected"]


def test_long_curves_are_thinned_without_changing_their_mean(build):
    lines = [metric_line(i, "divide g1", i, (i % 10) / 10) for i in range(2400)]
    page = build(files() | {"metrics.jsonl": lines})
    points = next(
        a["data-points"] for tag, a in page.tags if "TicTacToe-v0" in a.get("aria-label", "") and tag == "svg"
    )
    values = [float(point.split(" ")[4]) for point in points.split(";")]
    assert len(values) == 240
    np.testing.assert_allclose(values, 0.45, atol=1e-6)


def test_the_estimate_of_the_entropy_is_charted_under_that_name(build):
    lines = files()["metrics.jsonl"]
    for line in lines:
        line["metrics"]["negative_logprob"] = 0.7
    assert "entropy (estimate)" in build(files() | {"metrics.jsonl": lines}).text


def test_text_of_the_run_cannot_become_markup(page):
    assert "trial <b>run</b>" in page.text  # shown as text ...
    assert not [a for tag, a in page.tags if tag == "img" or "onerror" in a]
    assert [a.get("type") for tag, a in page.tags if tag == "script"] == ["application/json", None]
    assert "alert(" not in page.scripts[1]
    data = page.episodes()
    nasty = next(game for game in data["games"] if game["outcome"] == "invalid")
    assert data["texts"][nasty["turns"][0][2]] == NASTY  # ... and complete


def test_the_page_needs_no_other_file(page, folder):
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"https?://|@import|url\(", text)
    anchors = {a["id"] for _, a in page.tags if "id" in a}
    assert {link[1:] for link in page.links} <= anchors


def test_games_are_shown_as_played_again(page):
    games = page.episodes()["games"]
    texts = page.episodes()["texts"]
    assert (games[0]["stage"], games[0]["game"]) == ("final", "TowerOfHanoi-v0")
    first = next(g for g in games if g["iteration"] == 1)
    record = files()["episodes.jsonl"][0]
    shown = [
        [seat, texts[observation], texts[reply], verdict] for seat, observation, reply, _, verdict, _ in first["turns"]
    ]
    assert shown == [[t.seat, t.observation, t.reply, str(t.verdict)] for t in replay(record)]
    boards = [None if board is None else texts[board] for *_, board in first["turns"]]
    assert boards == [t.board for t in replay(record)]
    assert any(boards)
    results = {game["outcome"]: game["result"] for game in games}
    assert results["win"] == "The policy won."
    assert results["invalid"] == "The policy lost by a reply that is no legal action."
    assert first["reward"] == 1.0
    assert first["error"] is None


def test_a_game_that_contradicts_the_rules_is_shown_as_such(page):
    wrong = [g for g in page.episodes()["games"] if g["error"]]
    assert len(wrong) == 1
    assert "seed a whole number" in wrong[0]["error"]
    assert len(wrong[0]["turns"]) == len(files()["episodes.jsonl"][3]["replies"])


def test_games_are_sampled_from_both_ends_of_every_stage(build):
    records = [play("TicTacToe-v0", seed, iteration=seed // 40) for seed in range(400)]
    page = build({"episodes.jsonl": records})
    games = page.episodes()["games"]
    assert {g["iteration"] for g in games} == {0, 9}
    for iteration in (0, 9):
        outcomes = [g["outcome"] for g in games if g["iteration"] == iteration]
        assert len(outcomes) == len(set(outcomes)) >= 2


def test_the_page_stays_small_however_much_was_played(build, tmp_path):
    long = "thinking " * 2000 + "[4]"
    records = [play("TicTacToe-v0", s, replies=[f"{s} {long}"], stage=f"conquer {s}", iteration=0) for s in range(150)]
    page = build({"episodes.jsonl": records})
    assert 10 < len(page.episodes()["games"]) < 150
    assert (tmp_path / "report.html").stat().st_size < 1_500_000


@pytest.mark.parametrize("missing", files())
def test_a_half_finished_run_has_a_report(build, missing):
    content = {name: value for name, value in files().items() if name != missing}
    page = build(content)
    expected = {
        "config.json": "The configuration is not there",
        "versions.json": "Versions were not recorded",
        "groups.json": "not been divided into groups yet",
        "metrics.jsonl": "No iteration has been recorded yet",
        "evaluations.jsonl": "Not evaluated yet. So far the run is in stage divide g1, iteration 3.",
        "episodes.jsonl": "No games have been recorded yet",
    }
    for name, sentence in expected.items():
        assert (sentence in page.text) == (name not in content)


def test_a_run_that_has_only_begun_has_a_report(build):
    assert "Not evaluated yet. No iteration has been recorded." in build({"versions.json": {"starts": []}}).text


def test_a_half_written_last_line_is_passed_over_and_a_broken_one_is_named(tmp_path):
    for name, value in files().items():
        write(tmp_path, name, value)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "sta')
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"oops\n' + json.dumps(MATCHES[0] | {"seat": 7, "win": 61}) + "\n[1]\n")
    (tmp_path / "groups.json").write_text("[", encoding="utf-8")
    run = run_page.read(tmp_path)
    assert len(run.metrics) == 3
    assert len(run.evaluations) == len(MATCHES)
    assert run.problems == [
        "groups.json: expected a JSON object",
        "evaluations.jsonl, line 10: no JSON",
        "evaluations.jsonl: win + draw + loss + truncated is 101, but games is 100",
        "evaluations.jsonl, line 12: expected an object with stage, policy, opponent, game, seat",
    ]
    assert "4 things in the run folder could not be read" in Page(run_page.build(tmp_path).read_text("utf-8")).text


def test_a_policy_that_lost_ground_or_stood_still_is_called_so(build):
    def matches(wins):
        return [
            match("initial", "initial", "TicTacToe-v0", 0, (100, 0, 100, 0)),
            match("final", "initial", "TicTacToe-v0", 0, (wins, 0, 200 - wins, 0)),
        ]

    assert "The policy got worse." in build({"evaluations.jsonl": matches(60)}).text
    assert "No clear change." in build({"evaluations.jsonl": matches(108)}).text


def test_a_run_without_a_reference_is_reported_without_a_claim(build):
    rows = [match("final", "random_legal", game, 0, (150, 0, 50, 0)) for game in GAMES]
    page = build({"config.json": {"recipe": "tiny_player"}, "evaluations.jsonl": rows})
    _, low, high = wilson_interval(300, 400)
    sentence = f"Against random legal play the final policy scores 0.75 per game (95 % interval {interval(low, high)})."
    assert f"Measured, but not compared. {sentence}" in page.text
    assert "got better" not in page.text
    assert "divided" not in page.text
    assert [row[0] for row in page.table("Game", "Initial policy")] == ["Game", *GAMES, "All 2 together"]


def test_numbers_that_are_not_finite_leave_a_gap(build):
    lines = [metric_line(i, "divide g1", i, 0.5) for i in range(3)]
    lines[1]["metrics"] |= {"loss": "nan", "win_rate": "inf"}
    page = build({"metrics.jsonl": lines})
    panels = [a["aria-label"] for tag, a in page.tags if tag == "svg"]
    assert any(label.startswith("Optimization, loss: 2 iterations") for label in panels)


def test_the_last_start_tells_versions_and_device(page):
    assert "The run was started 2 times; this is the last one." in page.text
    assert ["jax", "0.10.2"] in page.table("dfc", "0.1.0")
    assert "Device<cpu>" in page.text.replace(" ", "")
    assert "Commit0123456789ab " in page.text


@pytest.mark.parametrize("recipe", ["evaluate", "evaluate_tasks"])
def test_a_report_of_a_recipe_s_own_is_not_replaced(tmp_path, capsys, recipe):
    (tmp_path / "config.json").write_text(json.dumps({"recipe": recipe}))
    (tmp_path / "report.html").write_text("its own")
    with pytest.raises(SystemExit):
        command.main([str(tmp_path)])
    assert f"the recipe {recipe} writes a report of its own" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "its own"


def test_the_command_line_builds_the_report_and_names_a_missing_folder(tmp_path, capsys):
    write(tmp_path, "metrics.jsonl", [])
    command.main([str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "absent")])
    assert "is no folder; expected a run folder" in capsys.readouterr().err
    with pytest.raises(RunFolderError):
        run_page.build(tmp_path / "absent")


def test_a_folder_that_is_no_run_has_no_report(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    for folder in (tmp_path, tmp_path / "empty"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(SystemExit) as caught:
            command.main([str(folder)])
        assert caught.value.code == 2
        assert f"{folder} holds no run; expected a run folder" in capsys.readouterr().err
        assert not (folder / "report.html").exists()


def test_a_setting_that_was_renamed_since_is_shown_by_its_name_of_today(tmp_path):
    content = files()
    del content["config.json"]["random_action_rate"]
    content["config.json"]["epsilon"] = 0.25
    page = built(tmp_path, content)
    assert ["random_action_rate", "0.25", "0.05"] in page.table("Setting", "This run", "Default")
    assert "epsilon" not in page.text
