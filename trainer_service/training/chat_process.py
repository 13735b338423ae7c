"""Writes with a model in a folder: `python -m trainer_service.training.chat_process --model FOLDER`.

Reads a JSON object a line on stdin, `{"messages": [{"role": "user", "content": "..."}]}`, and writes one a
line on stdout: `{"ready": true}` once the model is loaded, `{"text": "..."}` as it writes, and `{"end":
{"token_count": 9, "truncated": false}}`; or `{"error": "..."}` for what went wrong. Ends with its stdin.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from plaudit.types.scoring import ChatMessage
from trainer_service.training._rollout_chat import ChatRenderer


class ChatError(Exception):
    """An answer that cannot be written; the message is for people."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """How to write: at most `max_tokens`, greedily where `temperature` is 0."""

    max_tokens: int
    temperature: float
    seed: int


class LoadedModel:
    """A model and its tokenizer, as transformers loads them from a folder; adapters with their base model."""

    def __init__(self, folder: Path, settings: ChatSettings) -> None:
        """Raises ChatError."""
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            model: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype="auto", use_safetensors=True, trust_remote_code=False
            )
            self._renderer = ChatRenderer(self._tokenizer)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ChatError(f"{folder} cannot be loaded by transformers: {reason}") from error
        self._model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self._settings = settings
        torch.manual_seed(settings.seed)

    def answer(self, messages: list[ChatMessage]) -> dict[str, object]:
        """Writes the answer to a conversation as it comes, and returns what is told at its end."""
        token_ids = self._read(messages)
        room = self._room(len(token_ids))
        settings = self._settings
        written = self._model.generate(
            input_ids=torch.tensor([token_ids], device=self._model.device),
            attention_mask=torch.ones(1, len(token_ids), dtype=torch.long, device=self._model.device),
            max_new_tokens=min(settings.max_tokens, room),
            do_sample=settings.temperature > 0,
            temperature=settings.temperature or None,
            top_p=None,
            top_k=None,
            pad_token_id=self._tokenizer.pad_token_id,
            streamer=_LineStreamer(self._tokenizer, skip_prompt=True, skip_special_tokens=True),
        )[0][len(token_ids) :].tolist()
        return {"token_count": len(written), "truncated": not written or written[-1] not in self._ends()}

    def _read(self, messages: list[ChatMessage]) -> list[int]:
        if self._renderer.has_template:
            return list(self._renderer.render(messages)[1])
        return list(self._renderer.feed(messages[-1].content)[1])

    def _room(self, prompt_length: int) -> int:
        config = self._model.config.get_text_config(decoder=True)
        longest = getattr(config, "max_position_embeddings", None)
        if longest is None:
            return self._settings.max_tokens
        if prompt_length >= longest:
            raise ChatError(f"the prompt has {prompt_length} tokens, and the model reads at most {longest}")
        return int(longest) - prompt_length

    def _ends(self) -> set[int]:
        ends = self._model.generation_config.eos_token_id
        return set(ends if isinstance(ends, list) else [ends])


class _LineStreamer(TextStreamer):
    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            _tell({"text": text})


def main() -> int:
    """Runs the process; returns its exit status."""
    parser = argparse.ArgumentParser(prog="trainer_service.training.chat_process")
    parser.add_argument("--model", type=Path, required=True, help="folder of a model")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    disable_progress_bar()  # type: ignore[no-untyped-call]
    set_verbosity_error()  # type: ignore[no-untyped-call]
    warnings.simplefilter("ignore")
    settings = ChatSettings(options.max_tokens, options.temperature, options.seed)
    try:
        model = LoadedModel(options.model, settings)
    except ChatError as error:
        _tell({"error": str(error)})
        return 1
    _tell({"ready": True})
    for line in sys.stdin:
        messages = [ChatMessage(turn["role"], turn["content"]) for turn in json.loads(line)["messages"]]
        try:
            _tell({"end": model.answer(messages)})
        except (ChatError, RuntimeError, MemoryError) as error:
            _tell({"error": f"{error or 'memory ran out'}"})
    return 0


# What libraries print is not to stand between the messages.
_messages = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
os.dup2(sys.stderr.fileno(), sys.stdout.fileno())


def _tell(message: dict[str, object]) -> None:
    _messages.write(json.dumps(message) + "\n")
    _messages.flush()


if __name__ == "__main__":
    sys.exit(main())
