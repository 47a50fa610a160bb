"""Games of players that need no engine, in the tokens of the model that is to imitate them."""

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import numpy as np

from dfc.config import Collect
from dfc.episodes import Episode
from dfc.games import registry
from dfc.games.replay import replay
from dfc.games.scripted import Player
from dfc.models import huggingface
from dfc.players import factory, player_specs
from dfc.players.endpoint import Endpoint
from dfc.players.player_specs import DEMONSTRATOR, OPPONENT, PlayerSpec
from dfc.players.remote import Remote
from dfc.records.trajectories import seen_by
from dfc.rollout.host import load_tokenizer
from dfc.rollout.match import EpisodeSpec, system_prompt
from dfc.rollout.sequential_match import play_episode
from dfc.rows.conversations import encode
from dfc.samples import Sample


class Demonstrations:
    """Plays the games of a collection's demonstrator; reads a tokenizer and no weights. Use it as a context manager.

    With several processes each plays all of them: scripted players are cheap, and endpoints are for one process.

    Attributes:
      source: the folder of the model whose tokenizer and chat template encode the games.
      device: the hardware, as text.
      concurrency: games that are played side by side.
    """

    device = "no engine"

    def __init__(self, config: Collect, check_stop: Callable[[], None]) -> None:
        """Reads keys and the tokenizer; `check_stop` is called between replies, its exception aborts the play."""
        self._config, self._check_stop = config, check_stop
        self.source: Path = huggingface.resolve(config.model.path)
        self._tokenizer = load_tokenizer(self.source, enable_thinking=config.model.enable_thinking)
        self._demonstrator = self._player(player_specs.parse(config.demonstrator, DEMONSTRATOR))
        self._opponent = self._demonstrator
        if config.opponent != "itself":
            self._opponent = self._player(player_specs.parse(config.opponent, OPPONENT))
        simulators = player_specs.simulators(config)
        self._simulator = None if simulators is None else self._player(simulators)
        self.concurrency = max((endpoint.config.concurrency for endpoint in self.endpoints), default=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for endpoint in self.endpoints:
            endpoint.close()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Chat endpoints among the players, each once; their reports say what was spent."""
        seated = (self._demonstrator, self._opponent, self._simulator)
        return list({id(who): who for who in seated if isinstance(who, Endpoint)}.values())

    def play(self, specs: Sequence[EpisodeSpec]) -> list[Episode]:
        """Returns the episodes of the specs in their order, with the tokens that the model would have seen and sampled.

        Raises:
          Interrupted: a stop was asked for; games in flight are given up.
        """
        with ThreadPoolExecutor(self.concurrency) as pool:
            return list(pool.map(self._play, specs))

    def _player(self, spec: PlayerSpec) -> Player | Remote:
        return factory.player(spec, player_specs.endpoint_config(self._config, spec.name))

    def _play(self, spec: EpisodeSpec) -> Episode:
        self._check_stop()
        seats = registry.make(spec.game, **spec.options).seats
        seated = [self._demonstrator if seat == spec.seat else self._opponent for seat in range(seats)]
        episode = play_episode(
            spec,
            seated,
            self._config.rollout,
            opponent=self._config.opponent if seats > 1 else "none",
            simulator=self._simulator,
            check_stop=self._check_stop,
        )
        return episode if episode.failed else dataclasses.replace(episode, sample=self._sample(episode))

    def _sample(self, episode: Episode) -> Sample:
        if not episode.steps:
            return Sample.empty()
        system = system_prompt(self._config.rollout)
        token_ids, mask = encode(seen_by(replay(episode.record()), episode.seat, system), self._tokenizer)
        return Sample(token_ids, mask, np.zeros(len(token_ids), np.float32))
