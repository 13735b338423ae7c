"""Endpoints that speak Anthropic's messages. Imported only where a profile is used: it needs `[judge]`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx2

from reward_service.judge._http import NO_KEY, client_options, connection_fault
from reward_service.judge._provider import Reply, Request, fault_of_status, token_count
from reward_service.judge.settings import JudgeProfile


class AnthropicProvider:
    """Anthropic, or what is compatible with it."""

    def __init__(self, profile: JudgeProfile) -> None:
        self._profile = profile
        http_client = anthropic.DefaultAioHttpClient(
            **client_options(profile.concurrency, profile.request_timeout_seconds)
        )
        self._client = anthropic.AsyncAnthropic(
            api_key=NO_KEY,
            base_url=profile.base_url,
            max_retries=0,
            timeout=profile.request_timeout_seconds,
            http_client=http_client,
        )

    async def complete(self, request: Request, key: str) -> Reply:
        """One message."""
        self._client.api_key = key or NO_KEY
        try:
            response = await self._client.post(
                "/v1/messages", cast_to=httpx2.Response, body=self._body(request)
            )
        except anthropic.APIStatusError as error:
            raise fault_of_status(error.status_code, error.response.headers, error.body) from None
        except anthropic.APIConnectionError as error:
            raise connection_fault(error) from None
        return _reply(response.content)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._profile.model,
            "system": request.system,
            "messages": [{"role": "user", "content": request.user}],
            "max_tokens": request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.schema is not None:
            body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
        return body


def _reply(content: bytes) -> Reply:
    try:
        answer = json.loads(content)
        texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
        text = "".join(texts)
        stop = answer.get("stop_reason")
        usage = answer.get("usage")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Reply("", "malformed", None, None)
    tokens: Mapping[str, Any] = usage if isinstance(usage, Mapping) else {}
    read = [
        token_count(tokens.get(name) or 0)
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    known = [number for number in read if number is not None]
    input_tokens = sum(known) if "input_tokens" in tokens and len(known) == len(read) else None
    output_tokens = token_count(tokens.get("output_tokens"))
    if stop == "refusal":
        return Reply(text, "refusal", input_tokens, output_tokens)
    is_cut = stop in ("max_tokens", "model_context_window_exceeded")
    return Reply(text, "length" if is_cut else "done", input_tokens, output_tokens)
