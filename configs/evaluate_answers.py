"""Accuracy and pass@k on GSM8K, MATH, HumanEval, MBPP; and on instructions such as AlpacaEval's win rates by a judge.

Paper: Language Self-Play (arXiv 2509.07414), section 5: AlpacaEval, MATH, GSM8K and HumanEval at temperature 0.01, of
  models before and after self-play. Overall win rates on AlpacaEval, judged by Llama-4-Maverick beside a copy of the
  base: base 26.5 %, GRPO on data 38.8, LSP-Zero 32.0, LSP 36.4; of the others its text gives no numbers.
Command: python -m dfc.launch --config=configs/evaluate_answers.py --config.policies=base=FOLDER,trained=runs/NAME
  With --config.model.path=FOLDER, whose shape and tokenizer all share, and files by names:
  --config.questions="{'gsm8k': 'gsm8k_test.jsonl', 'humaneval': 'HumanEval.jsonl'}". A policy is initial (that
  folder), a folder with weights or a run, or tiny_player. Files are in the layouts of dfc/rows/questions.py and are
  yours to bring. Results are compared by math-verify (pip install "dfc[math]"), programs run under bubblewrap
  (apt-get install -y bubblewrap).
Hardware: what answering needs of the model, and CPU cores for checking: 0.3 s a program on one of them.
Time: that of sampling; 1,319 questions of GSM8K are 1,319 answers for each policy.
Score: none is given; the bundled model knows no mathematics.
Variant: --config.samples=10 --config.sampling.temperature=0.8 for pass@10. Win rates:
  --config.questions={} --config.pairwise.instructions=alpaca_eval.json --config.pairwise.baseline=initial
  --config.pairwise.judge=http://HOST/v1#MODEL.
"""

from dfc.config import AnswersRolloutConfig, EvaluateAnswers, SamplingConfig


def get_config() -> EvaluateAnswers:
    """Returns the configuration."""
    return EvaluateAnswers(
        name="evaluate_answers",
        policies=("initial",),
        questions={"gsm8k": "gsm8k_test.jsonl"},
        sampling=SamplingConfig(temperature=0.01),
        rollout=AnswersRolloutConfig(slots=128, max_length=4096, max_reply_length=2048),
    )
