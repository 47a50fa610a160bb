"""The paper's run: Paprika with Llama-3.1-8B-Instruct on ten task groups.

Paper: Paprika (arXiv 2502.17543), section 4 and appendices C and E for every value below. The paper's simulated worlds
and judges are gpt-4o-mini; `simulators` names the endpoint that takes their place, the bundled scripts are
weaker. Task sets are dfc's own, smaller in the simulated groups; dfc.games.paprika.original reads the paper's.
Command: python -m dfc.launch --config=configs/paprika_llama3_1_8b.py --config.model.path=FOLDER
  --config.simulators=https://HOST/v1#MODEL --config.endpoints.simulators.key_variable=OPENAI_API_KEY
Hardware: 8 devices of 80 GB (the paper: 8 GPUs).
Time: never run.
Score: the paper's Figure 2: success at temperature 0.7 over ten groups rises by 47 % of the initial model's.
Variant: --config.adapter.rank=64 trains adapters (with --config.adapter.base=nf4 over four bits);
  --config.build_data.leave_out=wordle leaves a group out; --config.rpo.alpha=0 is DPO;
  --config.rpo.reference=false --config.rpo.normalize_length=true --config.rpo.alpha=0
  --config.rpo.beta=2 --config.rpo.margin=1 is SimPO.
"""

from dfc.config import (
    BatchConfig,
    BuildDataConfig,
    CollectConfig,
    EvaluateTasksConfig,
    MeshConfig,
    ModelConfig,
    Paprika,
    PreferenceConfig,
    RolloutConfig,
    SamplingConfig,
    ScheduledOptimizerConfig,
    SftConfig,
    TrainingConfig,
)
from dfc.configs.evaluate_tasks import GROUPS


def get_config() -> Paprika:
    """Returns the configuration."""
    return Paprika(
        name="paprika_llama3_1_8b",
        games={group: {} for group in GROUPS},
        model=ModelConfig(path="Llama-3.1-8B-Instruct", dtype="bfloat16"),
        mesh=MeshConfig(fsdp=8),
        simulators="script",
        rollout=RolloutConfig(slots=64, max_length=16384, max_reply_length=1024),
        collect=CollectConfig(
            tasks=0,
            samples=20,
            samples_of={"mastermind": 100},
            sampling=SamplingConfig(temperature=1.5, min_p=0.3),
        ),
        build_data=BuildDataConfig(sft_tokens=12_000, pair_tokens=8_192),
        sft=SftConfig(batch_size=32, optimizer=_optimizer(1e-6)),
        rpo=PreferenceConfig(batch_size=32, optimizer=_optimizer(2e-7), beta=0.1, alpha=1.0),
        batch=BatchConfig(row_length=16384, micro_batch_rows=8),
        training=TrainingConfig(remat="layer"),
        evaluate_tasks=EvaluateTasksConfig(
            tasks=0,
            tasks_of={"bandit": 100},
            trajectories=4,
            sampling=SamplingConfig(temperature=0.7, min_p=0.3),
            temperatures=(0.3, 0.7, 1.0),
        ),
    )


def _optimizer(learning_rate: float) -> ScheduledOptimizerConfig:
    return ScheduledOptimizerConfig(learning_rate=learning_rate, schedule="cosine", warmup_ratio=0.04, b2=0.999)
