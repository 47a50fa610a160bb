"""The command from its words to its exit code; nothing is compiled here."""

import dataclasses
import json
import math
import os
import re
from pathlib import Path

import pytest

from dfc.config import MeshConfig, SmallModel
from dfc.errors import ConfigError
from dfc.launch import command_line, fit
from dfc.models import families
from dfc.tools.fit import command, holdings, iteration, published, report
from dfc.tools.fit.analytic import WorkEstimate
from dfc.tools.fit.collectives import Traffic
from dfc.tools.fit.compilation import Compiled, refused
from dfc.tools.fit.hardware import parse_topology
from dfc.tools.fit.traced import Count

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
    assert "fits, by sums" in out


def test_the_papers_run_as_it_is_shipped_plays_within_the_hosts_of_gpus_and_fits(capsys):
    for kind in ("h100", "a100"):
        code, out, _ = ask(capsys, PAPER, "--model=qwen2.5-32b", f"--topology={kind}:64")
        assert code == 0
        assert "playing: sharding tensor, data 8 x fsdp 1 x tensor 8" in out


def test_games_of_two_seats_keep_two_conversations(capsys):
    words = PAPER, "--model=qwen2.5-32b", "--topology=v5p:4x4x4", BF16
    _, out, _ = ask(capsys, *words)
    played = "256 games, 512 conversations x 12288 positions; a call: 256 of them, 32 steps or 128 tokens prefilled"
    assert played in out
    _, out, _ = ask(capsys, *words, "--config.rollout.rows=512", "--config.rollout.decode_steps=8")
    assert "a call: 512 of them, 8 steps" in out


def test_times_are_a_floor_and_a_labelled_estimate_at_stated_lengths(capsys):
    words = (
        PAPER,
        "--model=qwen2.5-32b",
        "--topology=h100:64",
        ROWS,
        BF16,
        "--episode_length=1000",
        "--generated_share=0.25",
    )
    _, out, _ = ask(capsys, *words)
    assert "1000 tokens per episode, 25% of them sampled" in out
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
    for path in (tmp_path / "config.json", tmp_path):
        named = ask(capsys, PAPER, "--topology=h100:64", ROWS, BF16, f"--model_config={path}")
        assert named[1].splitlines()[1:] == out.splitlines()[1:]


@pytest.mark.parametrize(
    ("repository", "topology", "says"),
    [
        ("Qwen/Qwen2.5-32B-Instruct", "v5p-128", "v5p:4x4x4: 64 devices"),
        ("Qwen/Qwen2.5-32B", "tpu7x-64", "v7:2x4x4: 64 devices"),
        ("meta-llama/Llama-3.3-70B-Instruct", "a3-highgpu-8g:8", "h100:64: 64 devices"),
    ],
)
def test_names_of_the_hub_and_of_cloud_are_understood(capsys, repository, topology, says):
    code, out, _ = ask(capsys, PAPER, f"--model={repository}", f"--topology={topology}", ROWS, BF16)
    assert code in (0, 1)
    assert out.startswith(f"{repository}: ")
    assert says in out


def test_of_an_amd_gpu_there_are_sums_and_no_compiler(capsys):
    words = "--config=configs/lora_one_gpu.py", "--model=llama-3.1-8b", "--topology=mi300x:1"
    code, out, _ = ask(capsys, *words)
    assert code == 0
    assert "attention xla" in out
    assert "mi300x:1: fits, by sums, margin 20%; nothing is compiled for this device" in out
    code, _, err = ask(capsys, *words, "--compile")
    assert code == 2
    assert "nothing is compiled for mi300x; leave out --compile" in err


def test_adapters_make_a_large_model_fit(capsys):
    words = PAPER, "--model=llama-3.1-70b", "--topology=v5e:8x8", ROWS, BF16, "--config.rollout.slots=8"
    assert ask(capsys, *words)[0] == 1
    adapted = "--config.adapter.rank=16", "--config.adapter.base=nf4"
    lengths = {"max_length": 2048, "max_prompt_length": 1024, "max_reply_length": 1024}
    shorter = "batch.row_length=2048", *(f"rollout.{name}={length}" for name, length in lengths.items())
    assert ask(capsys, *words, *adapted, *(f"--config.{word}" for word in shorter))[0] == 0


FILES = sorted(path.name for path in Path("configs").glob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_every_shipped_configuration_is_answered(file, capsys):
    config = command_line.load(f"configs/{file}")
    mesh = getattr(config, "mesh", MeshConfig())  # the bundled model is made on one device
    devices = math.prod(size for size in dataclasses.astuple(mesh) if size != -1)
    model = [] if isinstance(config, SmallModel) else ["--model=qwen2.5-0.5b"]
    code, out, err = ask(capsys, f"--config=configs/{file}", *model, f"--topology=h100:{devices}")
    assert (code, err) == (0, "")
    stages = iteration.stages_of(config)
    for stage in stages if len(stages) > 1 else ():
        assert f"{stage.name}: {stage.idle}" in out if stage.idle else f"\n{stage.name}\n=" in out
    if all(stage.idle for stage in stages):
        assert "nothing is held on a device" in out
    else:
        assert "million parameters" in out if isinstance(config, SmallModel) else "0.49 billion parameters" in out
        assert "fits, by sums" in out


@pytest.mark.parametrize(
    ("method", "games", "others"),
    [
        ("divide_fuse_conquer", 18, 3),
        ("divide_fuse_conquer", 2, 1),
        ("divide_fuse_conquer", 1, 0),
        ("naive_single", 18, 0),
        ("imitate_wins", 18, 0),
    ],
)
def test_only_a_method_that_divides_keeps_policies_of_other_groups(method, games, others, capsys):
    config = command_line.load(PAPER.removeprefix("--config="))
    config = dataclasses.replace(config, method=method, games=dict(list(config.games.items())[:games]))
    decoder = families.from_config_json(published.CONFIGS["qwen2.5-0.5b"])
    workload = holdings.workload_of(config, decoder, parse_topology("h100:64"), iteration.lengths_of(config))
    assert workload.group_policies == others
    assert workload.reference == (method != "imitate_wins")  # which compares with nothing
    words = PAPER, "--model=qwen2.5-32b", "--topology=h100:64", f"--config.method={method}"
    _, out, _ = ask(capsys, *words)
    assert ("policies of other groups" in out) == (method == "divide_fuse_conquer")


@pytest.mark.parametrize(
    ("model", "dtype", "topology", "attention"),
    [
        ("llama-3.1-8b", "bfloat16", "v6e:2x2", "splash"),
        ("llama-3.1-8b", "bfloat16", "a100:4", "cudnn"),
        ("llama-3.1-8b", "float32", "a100:4", "xla"),
        ("gemma-3-12b", "bfloat16", "a100:4", "xla"),  # heads of 256, which cuDNN takes from Hopper on
        ("gemma-3-12b", "bfloat16", "h100:4", "cudnn"),
        ("llama-3.1-8b", "bfloat16", "mi300x:4", "xla"),
    ],
)
def test_attention_is_the_program_that_the_devices_would_choose(model, dtype, topology, attention):
    config = command_line.load("configs/lora_one_gpu.py")
    decoder = dataclasses.replace(families.from_config_json(published.CONFIGS[model]), dtype=dtype)
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, micro_batch_rows=4))
    workload = holdings.workload_of(config, decoder, parse_topology(topology), iteration.lengths_of(config))
    assert workload.training.attention == attention


@pytest.mark.parametrize("content", ["[" * 200_000, "[]", "5", "{"], ids=["nested", "list", "number", "cut"])
@pytest.mark.parametrize("named", [True, False])
def test_a_config_json_that_is_none_is_a_sentence(content, named, capsys, tmp_path):
    (tmp_path / "config.json").write_text(content)
    word = f"--model_config={tmp_path / 'config.json'}" if named else f"--config.model.path={tmp_path}"
    code, _, err = ask(capsys, PAPER, "--topology=h100:64", word)
    assert code == 2
    assert str(tmp_path) in err
    assert len(err) < 2000


def test_a_pipe_or_a_huge_file_as_config_json_is_refused_and_not_waited_for(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as handle:
        handle.truncate(2**31)  # a hole: it takes no room on the disk
    for name in ("pipe", "huge"):
        code, _, err = ask(capsys, PAPER, "--topology=h100:64", f"--model_config={tmp_path / name}")
        assert code == 2
        assert str(tmp_path / name) in err


@pytest.mark.parametrize(
    "words", [[PAPER, "--topology=h100:64", "--\x1b[2Jcolour=red"], [PAPER, "--topology=h100:64", "--compile=\x1b[2J"]]
)
def test_nothing_that_is_printed_moves_the_cursor(words, capsys):
    try:
        code = fit.main(words)
    except SystemExit as error:  # argparse's own
        code = error.code
    captured = capsys.readouterr()
    assert code == 2
    assert "\x1b" not in captured.out + captured.err
    assert r"\x1b[2J" in captured.err


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
    compiled = Compiled(0, 0, 0, 0, peak, QUIET, 1.0)
    return report.ProgramReport("p", Count(), 0.0, beside, **({"compiled": compiled} | changes))


def test_a_program_fits_only_together_with_what_lies_beside_it():
    assert report.fits([one(6), one(4, beside=6.0)], 10)
    assert not report.fits([one(6), one(5, beside=6.0)], 10)
    assert not report.fits([one(1), one(0, compiled=None, refusal="needs at least 2 GB of 1 GB")], 10)


def test_nothing_compiled_is_no_proof():
    assert not report.fits([], 10)


def test_a_word_in_no_programs_name_is_an_error_that_lists_the_names():
    names = ["gradient", "weight hand-over", "decode"]
    assert command.matching_names((), names) == names
    assert command.matching_names(("hand", "dec"), names) == ["weight hand-over", "decode"]
    for words in (("gradeint",), ("decode", "prefil"), ("decode", "")):
        with pytest.raises(ConfigError, match="gradient, weight hand-over, decode"):
            command.matching_names(words, names)


def test_the_floor_is_the_slowest_of_arithmetic_memory_and_sending():
    topology = parse_topology("h100:16")
    chip = topology.chip
    assert report.time_of(WorkEstimate(chip.flops, 0), topology).floor == 1
    assert report.time_of(WorkEstimate(0, 2 * chip.bandwidth), topology).floor == 2
    inside = Traffic({"all-gather": 1}, {"all-gather": 3 * chip.interconnect})
    assert report.time_of(WorkEstimate(0, 0), topology, inside).floor == pytest.approx(3)
    outside = Traffic({"all-gather": 1}, {"all-gather": 3 * chip.network}, crossing=3 * chip.network)
    assert report.time_of(WorkEstimate(0, 0), topology, outside).floor == pytest.approx(3)
    assert report.time_of(WorkEstimate(chip.flops, 0), topology, inside).estimate > 3


@pytest.mark.parametrize(
    ("value", "text"), [(2e-6, "2 us"), (0.05, "50 ms"), (90, "90 s"), (600, "10 min"), (10800, "3 h")]
)
def test_times_carry_a_unit_a_person_reads(value, text):
    assert report.seconds(value) == text


def test_tables_are_aligned_and_markdown_is_a_table():
    rows = [["name", "x"], ["a", "1"], ["bcdef", "22"]]
    assert report.table(rows).splitlines() == ["name    x", "-----  --", "a       1", "bcdef  22"]
    assert report.table(rows, markdown=True).splitlines()[1] == "|-------|----|"


def test_rows_that_devices_cannot_share_are_answered_with_the_nearest_that_they_can(capsys):
    words = "--config=configs/lora_one_gpu.py", "--model=llama-3.1-8b", "--topology=h100:8"
    code, _, said = ask(capsys, *words)
    assert code == 2
    (flag,) = re.findall(r"the nearest one is (--config\.batch\.micro_batch_rows=\d+)$", said, re.MULTILINE)
    assert ask(capsys, *words, flag)[0] == 0
