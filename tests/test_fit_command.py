"""The command from its words to its exit code; nothing is compiled here."""

import json

import pytest

from dfc.errors import ConfigError
from dfc.fit import command, published, report
from dfc.fit.analytic import Work
from dfc.fit.collectives import Traffic
from dfc.fit.compilation import Compiled, refused
from dfc.fit.hardware import parse_topology
from dfc.fit.traced import Count
from dfc.launch import fit

PAPER = "--config=configs/dfc_textarena_qwen2_5_32b.py"
ROWS = "--config.batch.micro_batch_rows=64"
BF16 = "--config.model.dtype=bfloat16"
QUIET = Traffic({}, {})


def ask(capsys, *words):
    code = fit.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_run_that_fits_says_so_with_every_part_and_a_margin(capsys):
    code, out, _ = ask(capsys, PAPER, "--model=qwen2.5-32b", "--topology=v5p:4x4x4", ROWS, BF16)
    assert code == 0
    for part in ("trained weights", "optimizer", "residuals", "cache", "reference policy", "with a margin of 20%"):
        assert part in out
    assert "32.76 billion parameters" in out
    assert "fits, by adding up" in out


def test_games_of_two_seats_keep_two_conversations_and_calls_take_their_rows_out(capsys):
    words = PAPER, "--model=qwen2.5-32b", "--topology=v5p:4x4x4", BF16
    _, out, _ = ask(capsys, *words)
    assert "256 games, 512 conversations x 8192 positions; a call: 256 of them, 32 steps or 128 ids read" in out
    assert "rows taken out" in out
    # All of them lie where a call wants them, unless every host has conversations of its own.
    all_rows = "--config.rollout.rows=512", "--config.rollout.decode_steps=8"
    for tensor, copied in ((4, True), (8, False)):
        split = f"--config.mesh.fsdp={64 // tensor}", f"--config.mesh.tensor={tensor}"
        _, out, _ = ask(capsys, *words, *all_rows, *split)
        assert "a call: 512 of them, 8 steps" in out
        assert ("rows taken out" in out) == copied


def test_times_are_a_floor_and_a_labelled_estimate_at_stated_lengths(capsys):
    words = (
        PAPER,
        "--model=qwen2.5-32b",
        "--topology=h100:64",
        ROWS,
        BF16,
        "--episode_length=1000",
        "--drawn_share=0.25",
    )
    _, out, _ = ask(capsys, *words)
    assert "1000 ids per episode, 25% of them drawn" in out
    assert "no promise" in out
    heading = next(line for line in out.splitlines() if "floor" in line)
    assert "estimate" in heading


def test_a_run_that_does_not_fit_names_culprits_and_the_nearest_setting_that_does(capsys):
    words = PAPER, "--model=qwen2.5-32b", "--topology=h100:64", BF16, ROWS, "--config.rollout.slots=1024"
    code, out, _ = ask(capsys, *words)
    assert code == 1
    assert "largest: cache" in out
    change = next(line for line in out.splitlines() if "nearest setting" in line)
    assert "--config.rollout.slots=" in change
    smaller = [word for word in change.split() if word.startswith("--config.")]
    assert ask(capsys, *words, *smaller)[0] == 0


def test_a_folder_with_only_a_config_json_is_enough(capsys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(published.CONFIGS["qwen2.5-0.5b"]))
    words = PAPER, "--topology=h100:64", ROWS, BF16, f"--config.model.path={tmp_path}"
    code, out, _ = ask(capsys, *words)
    assert code == 0
    assert "0.49 billion" in out
    named = ask(capsys, PAPER, "--topology=h100:64", ROWS, BF16, f"--model_config={tmp_path / 'config.json'}")
    assert named[1].splitlines()[1:] == out.splitlines()[1:]


def test_adapters_make_a_large_model_fit(capsys):
    words = PAPER, "--model=llama-3.1-70b", "--topology=v5e:8x8", ROWS, BF16, "--config.rollout.slots=8"
    assert ask(capsys, *words)[0] == 1
    adapted = "--config.adapter.rank=16", "--config.adapter.base=nf4"
    shorter = "batch.row_length=2048", "rollout.max_length=2048", "rollout.max_reply_length=1024"
    assert ask(capsys, *words, *adapted, *(f"--config.{word}" for word in shorter))[0] == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "--config is missing"),
        ((PAPER,), "--topology is missing"),
        ((PAPER, "--topology=v9:8"), "there is no chip 'v9'"),
        ((PAPER, "--topology=h100:64", "--programs=decode"), "give --compile as well"),
        ((PAPER, "--topology=h100:8", "--colour=red"), "--colour=red: there is no such flag"),
        ((PAPER, "--topology=h100:64", "--model=gpt-2"), "not among the published ones"),
        ((PAPER, "--topology=h100:64", "--config.rollout.slots=0"), "rollout.slots"),
        ((PAPER, "--topology=h100:8", "--model=llama-3.1-8b"), "must be the number of devices"),
        ((PAPER, "--topology=h100:64", "--config.model.path=nowhere"), "nowhere"),
        ((PAPER, "--topology=h100:64", "--model_config=nowhere.json"), "nowhere.json"),
    ],
)
def test_a_wrong_word_is_answered_with_its_cure_and_exit_code_2(words, reason, capsys):
    code, _, err = ask(capsys, *words)
    assert code == 2
    assert reason in err


def test_the_compilers_refusal_is_read_whatever_its_units():
    error = refused(
        "RESOURCE_EXHAUSTED: Ran out of memory: the total required (18.19G) exceeds available HBM (15.75G)."
    )
    assert error.needed == int(18.19 * 2**30)
    assert error.available == int(15.75 * 2**30)
    assert refused("INTERNAL: Mosaic failed (1.5G of 2G)") is None


def one(peak, beside=0.0, **changes):
    compiled = Compiled(0, 0, 0, 0, peak, 0, QUIET, 1.0)
    return report.ProgramReport("p", Count(), 0.0, beside, **({"compiled": compiled} | changes))


def test_a_program_fits_only_together_with_what_lies_beside_it():
    assert report.fits([one(6), one(4, beside=6.0)], 10)
    assert not report.fits([one(6), one(5, beside=6.0)], 10)
    assert not report.fits([one(1), one(0, compiled=None, refusal="needs at least 2 GB of 1 GB")], 10)


def test_nothing_compiled_is_no_proof():
    assert not report.fits([], 10)


def test_a_word_in_no_programs_name_is_an_error_that_lists_the_names():
    names = ["gradient", "weight hand-over", "decode"]
    assert command.named((), names) == names
    assert command.named(("hand", "dec"), names) == ["weight hand-over", "decode"]
    for words in (("gradeint",), ("decode", "prefil"), ("decode", "")):
        with pytest.raises(ConfigError, match="gradient, weight hand-over, decode"):
            command.named(words, names)


def test_the_floor_is_the_slowest_of_arithmetic_memory_and_sending():
    topology = parse_topology("h100:16")
    chip = topology.chip
    assert report.time_of(Work(chip.flops, 0), topology).floor == 1
    assert report.time_of(Work(0, 2 * chip.bandwidth), topology).floor == 2
    inside = Traffic({"all-gather": 1}, {"all-gather": 3 * chip.interconnect})
    assert report.time_of(Work(0, 0), topology, inside).floor == pytest.approx(3)
    outside = Traffic({"all-gather": 1}, {"all-gather": 3 * chip.network}, crossing=3 * chip.network)
    assert report.time_of(Work(0, 0), topology, outside).floor == pytest.approx(3)
    assert report.time_of(Work(chip.flops, 0), topology, inside).estimate > 3


@pytest.mark.parametrize(
    ("value", "text"), [(2e-6, "2 us"), (0.05, "50 ms"), (90, "90 s"), (600, "10 min"), (10800, "3 h")]
)
def test_times_carry_a_unit_a_person_reads(value, text):
    assert report.seconds(value) == text


def test_tables_are_aligned_and_markdown_is_a_table():
    rows = [["name", "x"], ["a", "1"], ["bcdef", "22"]]
    assert report.table(rows).splitlines() == ["name    x", "-----  --", "a       1", "bcdef  22"]
    assert report.table(rows, markdown=True).splitlines()[1] == "|-------|----|"
