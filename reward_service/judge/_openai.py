"""Endpoints that speak OpenAI's chat completions. Imported where a profile is used: it needs `[judge]`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2
import openai

from reward_service.judge._http import NO_KEY, client_options, connection_fault
from reward_service.judge._provider import Reply, Request, fault_of_status, token_count
from reward_service.judge.settings import JudgeProfile


class OpenAiProvider:
    """Any endpoint that is compatible with OpenAI's."""

    def __init__(self, profile: JudgeProfile) -> None:
        self._profile = profile
        http_client = openai.DefaultAioHttpClient(
            **client_options(profile.concurrency, profile.request_timeout_seconds)
        )
        self._client = openai.AsyncOpenAI(
            api_key=NO_KEY,
            base_url=profile.base_url,
            max_retries=0,
            timeout=profile.request_timeout_seconds,
            http_client=http_client,
        )

    async def complete(self, request: Request, key: str) -> Reply:
        """One chat completion."""
        self._client.api_key = key or NO_KEY
        try:
            response = await self._client.post(
                "/chat/completions", cast_to=httpx2.Response, body=self._body(request)
            )
        except openai.APIStatusError as error:
            raise fault_of_status(error.status_code, error.response.headers, error.body) from None
        except openai.APIConnectionError as error:
            raise connection_fault(error) from None
        return _reply(response.content)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._profile.model,
            "messages": [
                {"role": "system", "content": request.system},
                {"role": "user", "content": request.user},
            ],
            self._profile.token_limit_field: request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.seed is not None:
            body["seed"] = request.seed
        if request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "strict": True, "schema": request.schema},
            }
        return body


def _reply(content: bytes) -> Reply:
    try:
        answer = json.loads(content)
        choice = answer["choices"][0]
        message = choice["message"]
        text = _text_of(message.get("content"))
        refusal = message.get("refusal")
        finish = choice.get("finish_reason")
        usage = answer.get("usage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Reply("", "malformed", None, None)
    tokens: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
    input_tokens, output_tokens = (
        token_count(tokens.get("prompt_tokens")),
        token_count(tokens.get("completion_tokens")),
    )
    if refusal or finish == "content_filter":
        return Reply(_text_of(refusal), "refusal", input_tokens, output_tokens)
    return Reply(text, "length" if finish == "length" else "done", input_tokens, output_tokens)


def _text_of(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
