"""Released configuration files, fields without effect left in."""

import json
from pathlib import Path

CONFIGS = json.loads((Path(__file__).parent / "released_configs.json").read_text())
LLAMA_32_1B, LLAMA_2_7B = CONFIGS["llama-3.2-1b"], CONFIGS["llama-2-7b"]
SKYWORK_REWARD_V2 = CONFIGS["skywork-reward-v2-llama-3.1-8b"]
QWEN_25_HALF_B, QWEN_3_4B, QWEN_3_8B = CONFIGS["qwen2.5-0.5b"], CONFIGS["qwen3-4b"], CONFIGS["qwen3-8b"]
MISTRAL_7B_V03 = CONFIGS["mistral-7b-instruct-v0.3"]
GEMMA_3_1B, GEMMA_3_12B = CONFIGS["gemma-3-1b-it"], CONFIGS["gemma-3-12b-it"]
LLAMA3 = CONFIGS["llama-3.1-8b"]["rope_scaling"]
FULL, SLIDING = "full_attention", "sliding_attention"
