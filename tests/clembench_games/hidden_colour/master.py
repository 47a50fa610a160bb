"""A game for two, of clemcore's legacy template, with what few games do: an opening that nobody replied to, chance from
the global generator, a module of its own, and a question to one player that leaves no trace in its dialogue."""

import random

from clemcore.clemgame import GameBenchmark, Player
from clemcore.clemgame.legacy.master import DialogueGameMaster
from clemcore.clemgame.legacy.scorer import GameScorer
from clemcore.clemgame.master import GameState
from clemcore.clemgame.metrics import BENCH_SCORE, METRIC_ABORTED, METRIC_LOSE, METRIC_SUCCESS
from helpers import COLOURS


class Teller(Player):
    def _custom_response(self, context):
        return "HINT: a colour"


class Namer(Player):
    def _custom_response(self, context):
        return "ASIDE: yes" if context["content"].startswith("ASIDE") else f"NAME: {random.choice(COLOURS)}"


class HiddenColour(DialogueGameMaster):
    """Two rounds of a hint and a name; between them the namer is asked aside whether it is sure."""

    def _on_setup(self, **instance):
        self.state = GameState()
        self.colour, self.sure = instance["colour"], []
        self.teller, self.namer = Teller(self.player_models[0]), Namer(self.player_models[1])
        mood = random.choice(("sunny", "rainy", "windy", "foggy"))
        self.add_player(self.teller, initial_context=f"It is {mood}. Hint at {self.colour}: HINT: ...")
        self.add_player(self.namer)

    def _on_before_game(self):
        self.namer._messages.append({"role": "user", "content": f"Name one of {', '.join(COLOURS)}: NAME: ..."})
        self.namer._messages.append({"role": "assistant", "content": "OK"})

    def _validate_player_response(self, player, response):
        if response.startswith("HINT: " if player is self.teller else "NAME: "):
            return True
        self.log_to_self("invalid format", f"{player.game_role} did not keep the form")
        self.state.abort()
        return False

    def _on_valid_player_response(self, player, parsed_response):
        if player is self.teller:
            self.set_context_for(self.namer, parsed_response)
            return
        self.set_context_for(self.teller, parsed_response)
        if parsed_response == f"NAME: {self.colour}":
            self.state.succeed()
            return
        answer = self.namer({"role": "user", "content": "ASIDE: are you sure?"}, memorize=False)
        self.sure.append(answer)
        self.log_to_self("probe", answer)

    def _on_after_round(self):
        if self.current_round + 1 >= 2 and not self.state.outcome.is_terminal:
            self.state.failed()

    def _on_after_game(self):
        self.log_key("sure", self.sure)


class HiddenColourScorer(GameScorer):
    def score_turns(self, interactions):
        pass

    def score_game(self, interactions):
        types = [event["action"]["type"] for turn in interactions["turns"] for event in turn]
        aborted = "invalid format" in types
        replies = [event["action"]["content"] for turn in interactions["turns"] for event in turn]
        won = not aborted and f"NAME: {self.game_instance['colour']}" in replies
        self.log_episode_score(METRIC_ABORTED, int(aborted))
        self.log_episode_score(METRIC_SUCCESS, int(won))
        self.log_episode_score(METRIC_LOSE, int(not aborted and not won))
        score = float("nan") if aborted else 100 / len(interactions["turns"]) if won else 0
        self.log_episode_score(BENCH_SCORE, score)


class HiddenColourBenchmark(GameBenchmark):
    def create_game_master(self, experiment, player_models):
        return HiddenColour(self.game_spec, experiment, player_models)

    def create_game_scorer(self, experiment, game_instance):
        return HiddenColourScorer(self.game_name, experiment, game_instance)
