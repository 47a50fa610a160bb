"""A game for one player, of clemcore's present template: a number is looked for, ``GUESS: 3`` or ``[3]``."""

import re

from clemcore.clemgame import GameBenchmark, Player
from clemcore.clemgame.errors import GameError, ParseError
from clemcore.clemgame.master import DialogueGameMaster
from clemcore.clemgame.metrics import BENCH_SCORE, METRIC_ABORTED, METRIC_LOSE, METRIC_SUCCESS, GameScorer


class Hunter(Player):
    """Counts upwards where a program plays."""

    def _custom_response(self, context):
        self.said = getattr(self, "said", 0) + 1
        return f"GUESS: {self.said}"


class NumberHunt(DialogueGameMaster):
    """A reply of another form ends the game; a number out of range is asked for again and costs no round."""

    def _on_setup(self, **instance):
        self.target, self.most = instance["target"], self.experiment["largest"]
        self.rounds, self.asks_again = self.experiment["rounds"], False
        self.hunter = Hunter(self.player_models[0])
        prompt = f"Find a number from 1 to {self.most} in {self.rounds} rounds. Reply with GUESS: and a number."
        self.add_player(self.hunter, initial_context=prompt)

    def _parse_response(self, player, response):
        found = re.fullmatch(r"GUESS: (\d+)|\[(\d+)\]", response, re.ASCII)
        if found is None:
            raise ParseError("no number", response)
        return int(found[1] or found[2])

    def _advance_game(self, player, parsed_response):
        self.asks_again = False
        if not 1 <= parsed_response <= self.most:
            raise GameError("out of range")
        self.log_to_self("guess", parsed_response)
        if parsed_response == self.target:
            self.state.succeed()
            return
        self.set_context_for(player, "higher" if parsed_response < self.target else "lower")

    def _on_parse_error(self, error):
        self.log_to_self("invalid format", "no number")
        self.state.abort()

    def _on_game_error(self, error):
        self.log_to_self("invalid guess", error.reason)
        self.asks_again = True
        self.set_context_for(self.hunter, f"From 1 to {self.most}, please.")

    def _start_next_round(self):
        return not self.asks_again

    def _on_after_round(self):
        if self.current_round + 1 >= self.rounds and not self.state.outcome.is_terminal:
            self.state.failed()

    def _on_after_game(self):
        for key, value in ((METRIC_ABORTED, "aborted"), (METRIC_LOSE, "failure"), (METRIC_SUCCESS, "success")):
            self.log_key(key, int(self.state.outcome.value == value))


class NumberHuntScorer(GameScorer):
    def compute_round_score(self, round_idx, round_events):
        pass

    def compute_episode_scores(self, interactions):
        if interactions[METRIC_ABORTED]:
            self.log_episode_score(BENCH_SCORE, float("nan"))
        else:
            won = interactions[METRIC_SUCCESS]
            self.log_episode_score(BENCH_SCORE, 100 / len(interactions["turns"]) if won else 0)


class NumberHuntBenchmark(GameBenchmark):
    def create_game_master(self, experiment, player_models):
        return NumberHunt(self.game_spec, experiment, player_models)

    def create_game_scorer(self, experiment, game_instance):
        return NumberHuntScorer(self.game_name, experiment, game_instance)
