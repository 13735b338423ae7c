"""Servers with a fault in what they say of themselves, or in opening a session. See broken_servers.py."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import grpc.aio
from correct_server import Context, CorrectServer, Frame

from plaudit.reward.v1 import reward_service_pb2 as pb

# Of what a server says of itself.


class NoServerInfo(CorrectServer):
    breaks = "R01"

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not there")
        raise AssertionError


class UpsideDownVersions(CorrectServer):
    breaks = "R02"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.min_protocol_version, info.max_protocol_version = 2, 1
        return info


class TwinNames(CorrectServer):
    breaks = "R03"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.rewards.append(self.reward())
        return info


class NoScope(CorrectServer):
    breaks = "R04"

    def reward(self) -> pb.Reward:
        reward = super().reward()
        reward.scope = pb.Reward.SCOPE_UNSPECIFIED
        return reward


class SchemaThatIsNone(CorrectServer):
    breaks = "R05"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        other = self.reward()
        other.name, other.config_schema_json = "other", '{"type": "objekt"}'
        info.rewards.append(other)
        return info


class TinyFrames(CorrectServer):
    breaks = "R06"

    def info(self) -> pb.GetServerInfoResponse:
        info = super().info()
        info.limits.max_frame_bytes = 64
        return info


# Of opening.


class SilentOnOpen(CorrectServer):
    breaks = "R07"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        return iter(())


class NoWindow(CorrectServer):
    breaks = "R07"
    window = 0


class ResultsBeforeOpened(CorrectServer):
    breaks = "R07"

    def opened(self, opening: pb.SessionOpen) -> Iterator[Frame]:
        yield pb.ScoreResponse(window=pb.WindowUpdate(max_in_flight_completions=8))
        yield from super().opened(opening)


class AcceptsAnyConfig(CorrectServer):
    breaks = "R33"

    def reward(self) -> pb.Reward:
        reward = super().reward()
        reward.config_schema_json = '{"type": "object", "additionalProperties": false}'
        return reward
