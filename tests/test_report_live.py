import json
import re

import pytest
from run_files import MATCHES, Page, files, metric_line, play, write

from dfc.games.replay import replay
from dfc.report import game_replays, live_report, run_page
from dfc.report.live_report import LiveReport
from dfc.report.reader import RunReader, read

STREAMS = ("metrics.jsonl", "evaluations.jsonl", "episodes.jsonl")


def state(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    return re.search(r'data-state="(\w+)" data-reload="([\d.]+)"', text).groups()


def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def started(folder):
    """A run folder in which nothing was recorded yet."""
    for name, value in files().items():
        write(folder, name, [] if name.endswith(".jsonl") else value)
    return folder


def add(folder, name, *lines):
    with (folder / name).open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


# ---- reading what was added -----------------------------------------------------------------------------------------


def test_reading_bit_by_bit_finds_what_reading_at_once_finds(tmp_path):
    started(tmp_path)
    reader = RunReader(tmp_path)
    content = files() | {"episodes.jsonl": [play("TicTacToe-v0", s, iteration=s // 3) for s in range(24)]}
    text = {name: "".join(json.dumps(line) + "\n" for line in content[name]).encode() for name in STREAMS}
    text["evaluations.jsonl"] += b'{"no"\n[1]\n'
    for part in range(10):  # cut anywhere, in the midst of a line and of a letter
        for name, whole in text.items():
            with (tmp_path / name).open("ab") as file:
                file.write(whole[len(whole) * part // 10 : len(whole) * (part + 1) // 10])
        found = reader.update()
    assert found == read(tmp_path)
    assert len(found.metrics) == 3
    assert len(found.evaluations) == len(MATCHES)
    assert [problem.split(":")[0] for problem in found.problems] == [
        f"evaluations.jsonl, line {len(MATCHES) + 1}",
        f"evaluations.jsonl, line {len(MATCHES) + 2}",
    ]


def test_what_was_read_is_not_read_again(tmp_path):
    started(tmp_path)
    add(tmp_path, "episodes.jsonl", *(play("TicTacToe-v0", s) for s in range(5)))
    reader = RunReader(tmp_path)
    before = reader.update().episodes
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(b"x" * path.stat().st_size)  # anyone who reads it again sees it
    assert before
    found = reader.update()
    assert found.episodes == before
    assert not found.problems


def test_a_run_that_went_back_to_its_checkpoint_is_read_anew(tmp_path):
    started(tmp_path)
    add(tmp_path, "metrics.jsonl", *(metric_line(i, "divide g1", i, 0.5) for i in range(1, 6)))
    reader = RunReader(tmp_path)
    assert len(reader.update().metrics) == 5
    write(tmp_path, "metrics.jsonl", [metric_line(i, "divide g1", i, 0.25) for i in range(1, 3)])
    assert [line["metrics"]["win_rate"] for line in reader.update().metrics] == [0.25, 0.25]


def test_a_last_line_without_its_newline_is_taken_once(tmp_path):
    started(tmp_path)
    reader = RunReader(tmp_path)
    for text in ('{"game": 1', ', "stage": "s", "replies": [], "outcomes": []}', "\n", '{"x": 1}\n'):
        with (tmp_path / "episodes.jsonl").open("a") as file:
            file.write(text)
        found = reader.update()
    assert [number for number, _ in found.episodes] == [1]
    assert [problem.split(":")[0] for problem in found.problems] == ["episodes.jsonl, line 2"]


# ---- while the run goes on ------------------------------------------------------------------------------------------


def test_every_refresh_shows_the_newest_iteration(tmp_path):
    started(tmp_path)
    live = LiveReport(tmp_path, total_steps=6, share=1e9)
    for step in range(1, 4):
        add(tmp_path, "metrics.jsonl", metric_line(step, "divide g1", step, 0.5))
        add(tmp_path, "episodes.jsonl", play("TicTacToe-v0", step, iteration=step))
        live.refresh()
        assert f"Running: divide g1, iteration {step}, step {step} of 6." in page(tmp_path).text
        assert state(tmp_path) == ("running", "10.0")
        assert {g["iteration"] for g in page(tmp_path).episodes()["games"]} == {1, step}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*files(), "report.html"])


def test_the_live_page_shows_the_games_that_the_whole_report_shows(tmp_path):
    started(tmp_path)
    live = LiveReport(tmp_path, share=1e9)
    for step in range(1, 5):
        add(tmp_path, "metrics.jsonl", metric_line(step, "divide g1", step, 0.5))
        add(tmp_path, "episodes.jsonl", *(play("TicTacToe-v0", 10 * step + s, iteration=step) for s in range(8)))
        live.refresh()
    games = page(tmp_path).episodes()
    run_page.build(tmp_path)
    assert page(tmp_path).episodes() == games
    assert len(games["games"]) > 3


def test_refreshing_takes_its_share_of_the_time_and_no_more(tmp_path, monkeypatch):
    started(tmp_path)
    now = [0.0]
    written = []

    def write_slowly(*_):
        written.append(now[0])
        now[0] += 0.5

    monkeypatch.setattr(live_report.run_page, "write", write_slowly)
    live = LiveReport(tmp_path, share=0.1, clock=lambda: now[0])
    for _ in range(100):
        live.refresh()
        now[0] += 1.5
    assert written[:3] == [0.0, 5.0, 10.0]  # 0.5 s each, so one in 5 s
    assert (len(written) - 1) * 0.5 <= 0.1 * now[0]


def test_a_failure_is_told_once_in_one_line_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    started(tmp_path)
    live = LiveReport(tmp_path, share=1e9)

    def fail(*_):
        raise OSError("no space\nleft on device")

    with monkeypatch.context() as patch:
        patch.setattr(live_report.run_page, "write", fail)
        for _ in range(3):
            live.refresh()
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert "report.html was not refreshed (OSError: no space left on device); the run continues without it" in told
    add(tmp_path, "metrics.jsonl", metric_line(1, "divide g1", 1, 0.5))
    live.refresh()
    assert "iteration 1, step 1" in page(tmp_path).text


def test_records_that_no_code_expects_do_not_stop_the_run(tmp_path, capsys):
    started(tmp_path)
    add(tmp_path, "metrics.jsonl", metric_line(1, "divide g1", 1, 0.5) | {"metrics": {"loss": "much"}})
    LiveReport(tmp_path).refresh()
    assert "was not refreshed (ValueError" in capsys.readouterr().out


def test_a_folder_that_is_gone_does_not_stop_the_run(tmp_path, capsys):
    LiveReport(tmp_path / "absent").refresh()
    assert capsys.readouterr().out.count("\n") == 1


def test_a_process_that_does_not_write_the_folder_writes_no_report(tmp_path):
    started(tmp_path)
    live = LiveReport(tmp_path, writes=False)
    live.refresh()
    with pytest.raises(KeyError), live:
        raise KeyError
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_stops_says_so_on_its_page(tmp_path):
    started(tmp_path)
    add(tmp_path, "metrics.jsonl", metric_line(1, "divide g1", 1, 0.5))
    with pytest.raises(KeyError), LiveReport(tmp_path):
        raise KeyError
    assert state(tmp_path)[0] == "stopped"
    assert "Stopped: divide g1, iteration 1, step 1. " in page(tmp_path).text
    assert "The same command resumes." in page(tmp_path).text


def test_only_the_page_of_a_finished_run_does_not_load_itself_again(tmp_path):
    for name, value in files().items():
        write(tmp_path, name, value)
    run_page.build(tmp_path)
    assert state(tmp_path) == ("unfinished", "30.0")
    assert any(a.get("http-equiv") == "refresh" for tag, a in page(tmp_path).tags if tag == "meta")
    (tmp_path / "finished.json").write_text("{}")
    run_page.build(tmp_path)
    assert state(tmp_path) == ("finished", "0.0")
    assert not any("http-equiv" in a for tag, a in page(tmp_path).tags if tag == "meta")
    assert "This page loads itself again" not in page(tmp_path).text


# ---- warnings on the page -------------------------------------------------------------------------------------------


def warned(folder, count=6, low=2):
    started(folder)
    lines = [metric_line(i, "divide g1", i, 0.5) for i in range(1, count + 1)]
    for line in lines:
        line["metrics"]["games/TicTacToe-v0/format_rate"] = 0.7 if line["iteration"] <= low else 1.0
    write(folder, "metrics.jsonl", lines)
    return folder


def test_a_warning_stands_before_the_results_and_marks_its_curve(tmp_path):
    run_page.build(warned(tmp_path))
    text = page(tmp_path).text
    title = "⚠ Too many illegal replies in TicTacToe-v0 divide g1, iterations 1-2 70.0% of the replies"
    assert title in text
    assert text.index(title) < text.index("Not evaluated yet.")
    assert "No warning so far" not in text
    marked = [a["data-metric"] for tag, a in page(tmp_path).tags if tag == "figure" and a.get("class") == "warned"]
    assert marked == ["games/TicTacToe-v0/format_rate"]
    bands = [a for tag, a in page(tmp_path).tags if tag == "rect" and a["class"] == "warning"]
    assert len(bands) == 1
    plot = 300 - 38 - 6  # 6 iterations side by side; the first two are marked
    assert float(bands[0]["x"]) == pytest.approx(38, abs=0.1)
    assert float(bands[0]["width"]) == pytest.approx(plot * 2 / 6, abs=0.1)


def test_a_finished_run_shows_its_warnings_behind_the_verdict(tmp_path):
    warned(tmp_path)
    (tmp_path / "finished.json").write_text("{}")
    run_page.build(tmp_path)
    assert page(tmp_path).text.count("⚠ Too many illegal replies") == 1
    write(tmp_path, "evaluations.jsonl", MATCHES)
    run_page.build(tmp_path)
    text = page(tmp_path).text
    assert text.count("⚠ Too many illegal replies") == 1
    assert (
        text.index("The policy got better") < text.index("⚠ Too many illegal replies") < text.index("A win is worth 1")
    )
    assert "now" not in text[text.index("⚠ Too many") : text.index("A win is worth 1")]


def test_a_run_without_warnings_says_so(tmp_path):
    run_page.build(warned(tmp_path, low=0))
    assert "No warning so far." in page(tmp_path).text
    assert "⚠" not in page(tmp_path).text


def test_the_progress_display_gets_the_newest_warning_while_it_is_new(tmp_path):
    live = LiveReport(warned(tmp_path, count=6, low=2), share=1e9)
    live.refresh()
    assert live.warning == "too many illegal replies in TicTacToe-v0 (divide g1, from iteration 1)"
    add(tmp_path, "metrics.jsonl", *(metric_line(i, "divide g1", i, 0.5) for i in range(7, 14)))
    live.refresh()
    assert not live.warning


def test_many_warnings_are_folded_with_the_newest_on_top(tmp_path):
    started(tmp_path)
    lines = [metric_line(i, f"divide g{i}", 1, 0.5) for i in range(1, 7)]
    for line in lines:
        line["metrics"]["games/TicTacToe-v0/format_rate"] = 0.7
    write(tmp_path, "metrics.jsonl", lines)
    run_page.build(tmp_path)
    text = page(tmp_path).text
    stages = re.findall(r"in TicTacToe-v0 (divide g\d), iteration 1( · now)?", text)
    assert stages == [("divide g6", " · now"), *((f"divide g{i}", "") for i in (5, 4, 3, 2, 1))]
    assert "3 more warnings" in text


def test_a_game_that_is_shown_again_is_not_played_again(tmp_path, monkeypatch):
    started(tmp_path)
    played = []
    monkeypatch.setattr(game_replays, "replay", lambda record: played.append(record["seed"]) or replay(record))
    live = LiveReport(tmp_path, share=1e9)
    for seed in (1, 2, 3):
        add(tmp_path, "episodes.jsonl", play("TicTacToe-v0", seed, iteration=seed))
        live.refresh()
    assert played == [1, 2, 3]
