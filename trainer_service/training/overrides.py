"""Every name of TRL and transformers that is overridden, patched or relied on.

Public interfaces aside; bitsandbytes is seen to in `four_bits`. `tests/unit/training/test_overrides.py`
compares the source of each with the digest here, so that a version that changes one of them fails there,
before it trains anything wrong. To move to a new version: read what changed, mend what depends on it, and
write down the new digest.
"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
import trl.kernels.chunked_logprob as trl_tiles
import trl.trainer.utils as trl_utils
from transformers import Trainer
from transformers.modeling_layers import GradientCheckpointingLayer
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.sft_trainer import SFTTrainer

from trainer_service.training.log_prob_tiles import TILE_COLUMNS, TILE_TOKENS, backward_tile, forward_tile


@dataclass(frozen=True, slots=True)
class Dependency:
    """A piece of foreign code: how we depend on it, why, and the SHA-256 (hex) of its source."""

    code: Callable[..., Any]
    kind: Literal["overridden", "patched", "relied on"]
    why: str
    sha256: str


def source_digest(code: Callable[..., Any]) -> str:
    """SHA-256, hex, of the source of a function or class, indentation aside."""
    return hashlib.sha256(textwrap.dedent(inspect.getsource(code)).encode()).hexdigest()


@contextmanager
def completion_positions_only() -> Iterator[None]:
    """While open, TRL's fused LM head scores the positions with a label only, whatever the device.

    On the CPU TRL scores every position, prompts and padding included, to keep shapes the same for compilers
    that are not used here.
    """
    with _replaced(trl_utils, "_use_triton", lambda device: True):
        yield


@contextmanager
def cache_under_checkpointing() -> Iterator[None]:
    """While open, layers under gradient checkpointing use the cache that they are given.

    transformers takes it away, as its own caches would grow once more when a layer is run again for the
    backward pass. Those of `shared_prompts` do not grow.
    """
    with _replaced(GradientCheckpointingLayer, "_can_checkpoint_with_cache", True):
        yield


@contextmanager
def tiles_in_place(device: torch.device) -> Iterator[None]:
    """While open, TRL's LM head does its arithmetic as `log_prob_tiles` does, where that can.

    On a GPU TRL has kernels of its own, and nothing is changed.
    It cannot where the model caps its logits or computes in half precision, or where more is asked for than
    log-probabilities and entropies.
    """
    if device.type != "cpu":
        yield
        return
    original_forward, original_backward = trl_tiles._forward_tile, trl_tiles._backward_tile

    def forward(
        tile: torch.Tensor,
        stride: int,
        targets: torch.Tensor,
        running_max: torch.Tensor,
        sum_exp: torch.Tensor,
        x_sum_exp: torch.Tensor,
        sq_sum_exp: torch.Tensor,
        z_sum: torch.Tensor,
        max_before_target: torch.Tensor,
        target_logit: torch.Tensor,
        vocab_start: int,
        columns: int,
        **how: Any,
    ) -> None:
        more = how["HAS_LOG_SUM_SQ_PROBS"] or how["HAS_MEAN_LOGITS"] or how["HAS_IS_TOP1"]
        if more or how["HAS_SOFTCAP"] or tile.dtype is not torch.float32:
            sums = (running_max, sum_exp, x_sum_exp, sq_sum_exp, z_sum, max_before_target, target_logit)
            original_forward(  # type: ignore[no-untyped-call]
                tile, stride, targets, *sums, vocab_start, columns, **how
            )
            return
        forward_tile(
            tile,
            targets,
            running_max,
            sum_exp,
            x_sum_exp,
            target_logit,
            vocab_start=vocab_start,
            scale=how["logit_scale"] * how["inv_t"],
            with_entropy=how["HAS_ENTROPY"],
        )

    def backward(
        tile: torch.Tensor,
        stride: int,
        targets: torch.Tensor,
        log_z: torch.Tensor,
        entropy: torch.Tensor,
        grad_logprobs: torch.Tensor,
        grad_entropy: torch.Tensor,
        vocab_start: int,
        columns: int,
        **how: Any,
    ) -> None:
        others = how["HAS_ENTROPY_GRAD"] or not how["HAS_LOGPROB_GRAD"]
        if others or how["HAS_SOFTCAP"] or tile.dtype is not torch.float32:
            given = (log_z, entropy, grad_logprobs, grad_entropy)
            original_backward(  # type: ignore[no-untyped-call]
                tile, stride, targets, *given, vocab_start, columns, **how
            )
            return
        scale = how["logit_scale"] * how["inv_t"]
        backward_tile(tile, targets, log_z, grad_logprobs, vocab_start=vocab_start, scale=scale)

    with (
        _replaced(trl_tiles, "_forward_tile", forward),
        _replaced(trl_tiles, "_backward_tile", backward),
        _replaced(trl_tiles, "TOKEN_CHUNK_SIZE", TILE_TOKENS),
        _replaced(trl_utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", TILE_COLUMNS),
    ):
        yield


@contextmanager
def _replaced(owner: ModuleType | type, name: str, value: object) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


DEPENDENCIES: tuple[Dependency, ...] = (
    # Overridden in trainer.py and run_trainer.py
    Dependency(
        GRPOTrainer.__init__,
        "overridden",
        "hands over what our methods need before TRL's constructor calls them",
        "08b825a073b699ff6fef17b85eda21fed2396007f2be8f30d65d49364643ef3a",
    ),
    Dependency(
        GRPOTrainer._get_train_sampler,
        "overridden",
        "one order for the whole run, reseeded each pass, so that a resumed run sees the same prompts",
        "c0ce48638e78ccc9b0cfe485319c8ee786c6bfe7f00e534943b57a7c56bcb5df",
    ),
    Dependency(
        GRPOTrainer._prepare_inputs,
        "overridden",
        "micro-batches of like length instead of shuffled ones",
        "40caff99c2cf12923aa71bd1d7491e2439187e56c7e9e2de4318c011ff35302f",
    ),
    Dependency(
        GRPOTrainer._generate_and_score_completions,
        "overridden",
        "notes the rows first; afterwards replaces the advantages and masks what could not be scored",
        "3d5cec813b83b3964b0aa9acdbb3f233f4e036ea1a2b0ac5aa521e23f321e7ef",
    ),
    Dependency(
        GRPOTrainer._tokenize_prompts,
        "overridden",
        "prompts were tokenized and cut when they were loaded",
        "1056d2a0a7b475a0c70a1098e4846e58a76691c8604e5153e05024baa41396e0",
    ),
    Dependency(
        GRPOTrainer._generate_single_turn,
        "overridden",
        "our rollout, which hands each completion to the scorer the moment it ends",
        "932da26950bae32c41af929b5f080391effd81a48aa1bd622c7e1cdb55a4b90e",
    ),
    Dependency(
        GRPOTrainer._calculate_rewards,
        "overridden",
        "waits for the scorer and joins by id; TRL calls it after the reference's forward pass",
        "5017fb893c0ca9dde68d08cec747984918b31c07fe171f1f8d00b60bb5bd17f8",
    ),
    Dependency(
        GRPOTrainer._get_per_token_logps_and_entropies,
        "overridden",
        "passes trimmed to their own width, with the positions that the rollout used",
        "fecf708797b16e296612c7b1efdb99e00b34ef1ce0f40afb787fbf86b2d9eac8",
    ),
    Dependency(
        GRPOTrainer.training_step,
        "overridden",
        "does the arithmetic of the LM head in place; counts _step, which says when to sample anew",
        "15ea836c392b6976d236a7333743c143f81cea132e09ef60a08f3a54cdfe61d0",
    ),
    Dependency(
        GRPOTrainer._compute_loss,
        "overridden",
        "scales losses that divide by rows; sums the step's metrics over its tokens",
        "16c4f3917b9fd26418d16176fd0aeb02ae30f3a41708061a5f8aa5bb74e25b26",
    ),
    Dependency(
        GRPOTrainer._save_checkpoint,
        "overridden",
        "complete or not there, and without a pickle of settings",
        "10fa449292ba1d3d01bd37b11a87d0092d4f2a42ef8baf3aa9277003e4e085ce",
    ),
    Dependency(
        Trainer._get_grad_norm,
        "overridden",
        "keeps the norm before clipping, to be checked",
        "27e2667f3741dab8749c8cf57583d1fe783e0a6c848b0e5199895a481b1ad6d9",
    ),
    # Overridden in sft/trainer.py and run_trainer.py
    Dependency(
        SFTTrainer.__init__,
        "overridden",
        "hands over what our methods need before TRL's constructor calls them",
        "76d729b676b4c752204a74e0fe02714db0c5b7968487d1efc8812c353bcae91e",
    ),
    Dependency(
        Trainer._get_train_sampler,
        "overridden",
        "one order for the whole run, reseeded each pass, so that a resumed run sees the same examples",
        "f3d15b81f2b00da7dfe2bb12807bc04a9d2cd15ba067975f85ff588194f028e5",
    ),
    Dependency(
        Trainer.get_batch_samples,
        "overridden",
        "micro-batches of like length, and the trained tokens of the whole step for every model",
        "c2e656129b2b0a554ae817ee61920d5d25e0ebdf23a4a22193ae6f5d9d94122e",
    ),
    Dependency(
        SFTTrainer.compute_loss,
        "overridden",
        "scores trained positions only, on the CPU too; sums the step's metrics over its tokens",
        "fc5223add31c7409c83a2fc5b7fe67ebe7cca9abde3b1abec6d807f15d8b923b",
    ),
    Dependency(
        SFTTrainer._save_checkpoint,
        "overridden",
        "complete or not there, and without a pickle of settings",
        "4ed3621b6867c9ca07d0f075d23e27d28df52789d7c6c19acb17e2eda70fd437",
    ),
    # Patched
    Dependency(
        trl_utils.add_fused_lm_head,
        "patched",
        "its name _use_triton decides whether only positions with a label are scored",
        "422d009f04b66659982f9545a90d560bdcc27fde3268de203d0c5c6d1449d211",
    ),
    Dependency(
        trl_tiles._forward_tile,
        "patched",
        "the same arithmetic in place",
        "adf891da0123196110c50da4d4c15099a1f4a04e9949fcc56778bdfa4df0f84d",
    ),
    Dependency(
        trl_tiles._backward_tile,
        "patched",
        "the same arithmetic in place",
        "9b01548ea9d1c3ff821f1a94816e6b5c91aad48db936f9e0495cc27f0d99261c",
    ),
    Dependency(
        trl_tiles.ChunkedLogProbFunction,
        "relied on",
        "what it hands to its tiles, and that it reads no more of a tile than they leave",
        "3661e8975a9f64cc39d250ecf3e2ae22ba181f09bd5c22392e3a4e52eb04e9aa",
    ),
    Dependency(
        GradientCheckpointingLayer.__init_subclass__,
        "patched",
        "_can_checkpoint_with_cache decides whether a layer that is checkpointed keeps its cache",
        "9f660860758b87addfe1952ff13defd049a7c5fe0f7d0f5cac3c90ca58ffceac",
    ),
    # Relied on
    Dependency(
        GRPOTrainer.log,
        "relied on",
        "empties _metrics when it logs, which we do instead",
        "14517d3dbad259c04dd0501dc70666a8f173e18c8301e78ee30258954b4d9b00",
    ),
    Dependency(
        GRPOTrainer._generate,
        "relied on",
        "calls what we override, and needs non-empty completions",
        "bea6bc4f3207f3960b3415b266a951128b47b6b7bf198207800ae13267020549",
    ),
    Dependency(
        GRPOTrainer.get_train_dataloader,
        "relied on",
        "slices the layout that our sampler yields",
        "4e81492828d00e658e5ef040c6d1d3cebd711e641e1614318570aa6bbd6024d0",
    ),
    Dependency(
        GRPOTrainer.compute_loss,
        "relied on",
        "calls _compute_loss and scales nothing",
        "adf7308e034ac6c46b42bb6808bc89b5496af951843bc803b33aa032b93f9f0b",
    ),
    Dependency(
        SFTTrainer.log,
        "relied on",
        "empties _metrics when it logs, which we do instead",
        "aa94fde9ecf0711da2df9b16f2251444b27a4fd3b724c2f19559a865baf6bf1c",
    ),
    Dependency(
        SFTTrainer._reject_skip_prepare_without_labels,
        "relied on",
        "takes a dataset that holds numbers only, as batches are made by us",
        "22a8eca8844cb3e65527531ecf8350329a4460aa7d014a72aeb7ab9246af88d3",
    ),
    Dependency(
        Trainer.training_step,
        "relied on",
        "divides no loss that loss_is_scaled_for_ga says is scaled",
        "caa7e68f3335f9ae94284201718bce0d3b2c63cf7dfcf36669933bc8baf3c624",
    ),
    Dependency(
        Trainer._get_dataloader,
        "relied on",
        "gives the sampler's numbers to get_batch_samples, in its order",
        "f883f6926ea3d68e54f9e0b53e3ef94a1cd30db71fc13fa2f8eb619f972bc049",
    ),
    Dependency(
        trl_utils.split_tensor_dict,
        "relied on",
        "divides a batch into micro-batches",
        "b61a5760a03e95dbceddcc1e8e78c3db6d9303f01c0b1ced19b745271e56d079",
    ),
    Dependency(
        unwrap_model_for_generation,
        "relied on",
        "the model that the rollout runs",
        "583d1303c5c55405c0c7b62819e64a1909c533a07cee740ed59b276a1b82375e",
    ),
    Dependency(
        Trainer._run_epoch,
        "relied on",
        "the order of clipping, on_pre_optimizer_step, optimizer, scheduler, on_step_end and saving",
        "20e0f3da019948647d90d1e7346329a8d05107f8bfa333ad73d083dd480cfbab",
    ),
    Dependency(
        Trainer._init_training_state,
        "relied on",
        "where a resumed run goes on",
        "4104b60f52334e7c7fef1b5865c9447802531fab7770b513de5611347e2658a5",
    ),
    Dependency(
        Trainer.set_initial_training_values,
        "relied on",
        "steps of the one epoch that a run is",
        "83e6e858bf35aea51292d365f73ced33fc3ad802594bb03408f63227c214a484",
    ),
    Dependency(
        Trainer._clip_grad_norm,
        "relied on",
        "returns the norm before clipping",
        "df0a0246dbcb0b20553d6233b60b46b1581089c164a50be062ce63c191eb8439",
    ),
    Dependency(
        Trainer._save_optimizer_and_scheduler,
        "relied on",
        "files of a checkpoint",
        "bc4e124e099660b85b33e8ea333280d6c1c97433fecc9e046d516dd317d57097",
    ),
    Dependency(
        Trainer._save_rng_state,
        "relied on",
        "files of a checkpoint",
        "87f4e3c83b0fadd7566eeae1a012cb383cddc60b166b9ac7a2b7a9e832f6ebf6",
    ),
    Dependency(
        Trainer._load_from_checkpoint,
        "relied on",
        "loads the weights into the base model",
        "1fa7425d1ea7cc181e59f32b4aeb7dd3666235208176d37182cd0ba2d55246a9",
    ),
    Dependency(
        Trainer._load_optimizer_and_scheduler,
        "relied on",
        "files of a checkpoint",
        "d8b86ea0410fde7b467be930081265277e7626a25018b33900dc3ab2f5c4b851",
    ),
    Dependency(
        Trainer._load_rng_state,
        "relied on",
        "files of a checkpoint",
        "5d66257d34a3100e1a67a109669c8cfad8c663bd860576cbc22766ae49782c22",
    ),
)
"""All of them; `kind` says how each is used."""
