"""Policies that a run leaves: the trained one, and the last good one before an update that is refused."""

from collections.abc import Callable
from pathlib import Path

from dfc.errors import TrainingError
from dfc.models import huggingface, peft
from dfc.models.config import DecoderConfig
from dfc.models.lora import LoraConfig, merge
from dfc.models.safetensors_format import Location
from dfc.models.transformer import Params


def save_policy(
    path: Path,
    adapter: Path,
    trained: Params,
    *,
    model: DecoderConfig,
    lora: LoraConfig | None,
    source: Location,
    name: str,
    weights: Callable[[], Params],
) -> None:
    """Writes a policy; with adapters the merged model at full precision, and the adapters as PEFT has them.

    `trained` is what is played; `source` is the folder of the model before training, whose weights at full precision
    `weights` returns, called where adapters are merged, and whose `name` stands in the adapters' file.
    """
    if lora is not None:
        params = merge(weights(), trained, lora.scale)
        if huggingface.reads_images(source):
            print("adapter/ is left out: PEFT would look for the image model's names; policy/ has it merged")  # noqa: T201 - why a folder is missing
        else:
            peft.save_adapter(adapter, lora, trained, model, name)
        trained = params
    huggingface.save(path, model, trained, copy_from=source)


def diverged(
    why: str, rate: float, policy: Path | None = None, step: int = 0, *, key: str = "optimizer.learning_rate"
) -> TrainingError:
    """Returns the message of a run that diverged: what happened, what is saved, how to continue.

    `policy` is the last one that is finite and within bounds, saved after `step`, in the Hugging Face layout; None
    where there is none. `key` is that of the learning rate.
    """
    again = f"the same command with {key} lower than {rate:g} and another --workdir"
    folder = "since a run folder belongs to one configuration"
    text = f"{why}. Training has diverged: nothing of this update is saved, and the same command would end here again."
    if policy is None:
        return TrainingError(f"{text} Begin again: {again}, {folder}.")
    return TrainingError(
        f"{text} Up to step {step} every update was finite and within bounds, which does not say that its policy plays"
        f" well; it is in {policy}. To continue from it: {again}, {folder}, and"
        f" --config.model.path={policy}. Without model.path it begins again."
    )
