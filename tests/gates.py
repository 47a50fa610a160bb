"""Two gates: `make test` runs the first one, `make test-all` both; `.ci/run` runs both.

    python tests/gates.py SUITE.xml     writes seconds.json from a run with --junitxml=SUITE.xml

In the first gate: all games, pure functions and units, a whole run of each way to train, one kill. In the second: what
took longer than `LONGEST` seconds when it was last measured (`seconds.json`), and the files of `SECOND`, which run
whole recipes, several processes, every setting, kills at many moments. A test that is in neither list is in the first.
"""

import collections
import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

SECONDS = Path(__file__).with_name("seconds.json")
LONGEST = 2.0  # seconds of a function with all its parameters, in two workers on two cores
_LEAST = 1.0  # what is not written down takes less
_FILES = """
test_adapter_run test_data_limits test_decoding_mesh test_every_field test_lost_process test_lsp_published
test_merge_before_quantising test_offline_reference test_offline_two_processes test_paprika_rows
test_poker_textarena test_python_surface test_quantization test_resume test_sampler_gap test_sandbox_memory
test_self_play_kills test_self_play_penalty_run test_self_play_role_adapters test_self_play_two_processes
test_serving_run test_teacher_endpoint test_teacher_two_processes test_tiny_player test_tpu_cache
test_training_layouts test_turn_rewards test_tutorial test_two_hosts_play test_two_processes
"""
SECOND = frozenset(_FILES.split())
"""Files of the second gate, which the first one does not even collect."""

FIRST = frozenset(
    [
        # Whole runs: GRPO and what is built on it, Divide-Fuse-Conquer with a stop, Paprika, self-play, rows, models.
        "test_baselines::test_a_baseline_runs_to_its_end[grpo]",
        "test_baselines::test_a_stop_changes_nothing[divide_fuse_conquer]",
        "test_own_method::test_the_method_of_the_page_trains_by_its_own_class_and_resumes",
        "test_paprika_run::test_every_stage_does_its_part",
        "test_language_self_play::test_a_run_leaves_queries_answers_metrics_seconds_and_a_policy",
        "test_offline::test_data_that_was_built_is_trained_on",
        "test_self_play_base::test_one_is_made_evaluated_and_made_again",
        "test_evaluate::test_models_programs_and_endpoints_play_each_other_and_every_game_is_on_record",
        # The kill.
        "test_language_self_play::test_a_killed_run_resumes_bit_for_bit",
        # Games.
        "test_games_protocol::test_every_property_of_the_protocol_holds",
        "test_scripted::test_every_game_has_players_of_every_strength_that_play_legally_without_changing_it",
        "test_games_protocol::test_any_reply_gets_a_verdict_at_once_and_plays_one_action_at_most",
        "test_hostile_replies::test_any_reply_gets_a_verdict_and_leaves_a_game_that_can_be_shown_and_kept",
        "test_original_instances::test_every_player_plays_a_file_to_its_end_and_copies_agree",
        # The model, the sampler and what lies between them and the losses.
        "test_transformer::test_every_number_of_the_config_counts",
        "test_family_parity::test_greedy_decoding_gives_the_ids_of_transformers",
        "test_cache::test_rows_read_their_own_slots_up_to_themselves",
        "test_engine::test_cached_equals_uncached",
        "test_engine::test_a_reply_does_not_depend_on_the_others_the_slot_or_the_time",
        "test_sampling::test_the_id_drawn_is_where_the_cumulative_distribution_passes_the_number",
        "test_sampling::test_rows_of_all_settings_in_one_batch_follow_each_its_own_distribution",
        "test_runner::test_every_id_is_what_the_replay_of_the_game_says",
        "test_samples::test_samples_are_those_of_conversations_alone",
        "test_constrained_training::test_the_trainer_finds_the_log_probabilities_of_a_rollout_among_legal_actions",
        "test_logprobs::test_tiles_over_ids_agree_with_torch_within_1e_5",
        # Losses and updates.
        "test_loop::test_the_loop_trains",
        "test_loss_pieces::test_the_pieces_put_together_are_grpo_whatever_stands_at_masked_positions",
        "test_losses::test_micro_batches_add_up",
        "test_losses_extremes::test_no_combination_of_log_probabilities_gives_nan",
        "test_trl_names::test_loss_types_are_units",
        "test_trainer::test_packing_and_micro_batches_do_not_change_an_update",
        "test_update_parts::test_value_and_gradient_of_both_losses_are_those_of_the_formulas",
        # Rules of the house.
        "test_import_direction::test_imports_point_one_way",
        "test_prose::test_prose_is_plain",
        "test_vocabulary::test_names_are_in_the_vocabulary",
        "test_dependencies::test_the_package_imports_what_it_declares_and_extras_only_where_they_are_wanted",
        "test_hostile_configurations::test_every_field_takes_or_refuses_a_hostile_value_without_a_traceback",
        "test_hostile_configurations::test_every_field_of_a_file_may_hold_anything",
        "test_foreign_names::test_what_is_told_to_be_written_is_there_in_every_recipe",
    ]
)
"""Functions, or single cases, that stay in the first gate however long they take."""


def is_second(file: str, name: str, seconds: dict[str, float]) -> bool:
    """Whether a test is of the second gate.

    Args:
      file: its name without the ending.
      name: of the function, with its parameters in brackets.
      seconds: of functions, as `seconds.json` has them.
    """
    function = f"{file}::{name.partition('[')[0]}"
    if function in FIRST or f"{file}::{name}" in FIRST:
        return False
    return file in SECOND or seconds.get(function, 0) > LONGEST


def measured() -> dict[str, float]:
    """Seconds of the functions that took more than `_LEAST`."""
    found: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8"))
    return found


def write(report: Path) -> None:
    """Writes seconds.json from a report of pytest."""
    seconds: collections.Counter[str] = collections.Counter()
    for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - of our own run
        file = case.attrib["classname"].split(".")[-1]
        seconds[f"{file}::{case.attrib['name'].partition('[')[0]}"] += float(case.attrib["time"])
    kept = {name: round(value, 1) for name, value in sorted(seconds.items()) if value > _LEAST}
    SECONDS.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
    first = sum(value for name, value in seconds.items() if not is_second(*name.split("::"), kept))
    print(f"first gate {first:,.0f} s, both {sum(seconds.values()):,.0f} s, in one worker")  # noqa: T201 - a command's answer


if __name__ == "__main__":
    write(Path(sys.argv[1]))
