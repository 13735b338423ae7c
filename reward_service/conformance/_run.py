"""One run of the suite against one server: what all rules share."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from plaudit.errors import InvalidArgumentError
from plaudit.reward.v1 import reward_service_pb2 as pb
from reward_service.conformance._faults import JOINING, Fault
from reward_service.conformance._ledger import LARGEST_VALUE, Ledger, Outcome, Range, shown
from reward_service.conformance._rule import Broken, Skipped
from reward_service.conformance._settings import Settings
from reward_service.conformance._talk import Talk
from reward_service.conformance._target import open_channel
from reward_service.conformance._wire import SERVICE_NAME, Wire
from reward_service.conformance._work import TEXTS, Work

KEY: Final = "score"
"""Key of the reward in conversations with one."""

_BRIEF_SECONDS: Final = 5.0
_MIN_BATCH_SECONDS: Final = 60.0
_TRIED_REWARDS: Final = 16
_PLAIN_PATIENCE: Final = 6.0
_ODD_IDS: Final = ("0007", "7", "Id with blanks ", "id-\u00e9\u4e2d")


@dataclass(frozen=True, slots=True)
class Plain:
    """The plain conversation: a few batches of good completions, read to the end.

    `trouble` is what kept it from coming to its end.
    """

    ledger: Ledger
    exchange: Sequence[str]
    trouble: Broken | None

    @property
    def outcomes(self) -> list[Outcome]:
        """What came of the completions."""
        return [outcome for entry in self.ledger.entries.values() for outcome in entry.outcomes.values()]


class Run:
    """What the rules are checked with. Connections are closed by `close`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._channels: list[grpc.aio.Channel] = []
        self.wire = self.connect()
        self._loaded: pb.GetServerInfoResponse | Broken | None = None
        self._chosen: pb.Reward | None = None
        self._plain: Plain | None = None

    @property
    def timeout(self) -> float:
        """The longest silence of the server, in seconds."""
        return self.settings.timeout

    @property
    def brief(self) -> float:
        """How long to wait for what may well not come, in seconds."""
        return min(self.timeout, _BRIEF_SECONDS / 2 if self.settings.quick else _BRIEF_SECONDS)

    @property
    def loaded(self) -> bool:
        """Whether there is a description."""
        return isinstance(self._loaded, pb.GetServerInfoResponse)

    @property
    def may_talk(self) -> bool:
        """Whether the plain conversation was held, to its end."""
        return self._plain is not None and self._plain.trouble is None

    @property
    def info(self) -> pb.GetServerInfoResponse:
        """The server's description."""
        assert isinstance(self._loaded, pb.GetServerInfoResponse)
        return self._loaded

    @property
    def reward(self) -> pb.Reward:
        """The reward that is tested."""
        assert self._chosen is not None
        return self._chosen

    @property
    def per_completion(self) -> bool:
        """Whether the reward looks at each completion by itself."""
        return self.reward.scope != pb.Reward.SCOPE_GROUP

    @property
    def work(self) -> Work:
        """Makes what is sent."""
        return self._work

    @property
    def frame_bytes(self) -> int:
        """Most bytes of a frame that the server takes."""
        return self.info.limits.max_frame_bytes or 4 * 2**20

    def connect(self, *, ping_every_seconds: int | None = None) -> Wire:
        """A connection of its own."""
        channel = open_channel(self.settings.target, ping_every_seconds=ping_every_seconds)
        self._channels.append(channel)
        return Wire(channel, self.settings.target.metadata)

    async def close(self) -> None:
        """Closes all connections."""
        for channel in self._channels:
            await channel.close()

    def selection(
        self, key: str = KEY, *, name: str = "", config_json: str | None = None
    ) -> pb.RewardSelection:
        """The reward under a key."""
        return pb.RewardSelection(
            key=key,
            name=name or self.reward.name,
            config_json=self.settings.config_json if config_json is None else config_json,
        )

    def talk(
        self,
        *selections: pb.RewardSelection,
        wire: Wire | None = None,
        reads_bundles: bool = False,
    ) -> Talk:
        """A conversation, of the reward alone where no selections are given."""
        chosen = selections or (self.selection(),)
        ranges = {selection.key: range_of(self.reward) for selection in chosen}
        return Talk(wire or self.wire, chosen, ranges, self.timeout, reads_bundles=reads_bundles)

    async def load(self) -> None:
        """Reads the server's description, once.

        Raises Broken where there is none, and InvalidArgumentError where it lacks the reward that was named.
        """
        if self._loaded is None:
            try:
                raw = await self.wire.server_info(self.timeout)
                self._loaded = pb.GetServerInfoResponse.FromString(raw)
            except grpc.aio.AioRpcError as error:
                self._loaded = Broken(
                    f"GetServerInfo ended with {error.code().name} {shown(error.details() or '')}"
                    + await self._what_else(error)
                )
            except DecodeError as error:
                self._loaded = Broken(f"the answer of {len(raw)} bytes is no GetServerInfoResponse: {error}")
            else:
                self._chosen = await self._choose(self._loaded)
                self._work = Work(
                    self._chosen,
                    self.settings.rows,
                    self._loaded.limits,
                    max(_MIN_BATCH_SECONDS, 2 * self.timeout),
                )
        if isinstance(self._loaded, Broken):
            raise self._loaded

    async def plain(self) -> Plain:
        """The plain conversation, held once."""
        if self._plain is None:
            self._plain = await self._converse()
        return self._plain

    async def require_talk(self) -> None:
        """Raises Skipped where the plain conversation did not come to its end."""
        trouble = (await self.plain()).trouble
        if trouble is not None:
            raise Skipped(f"the plain conversation of R07 to R16 got stuck: {trouble.found}")

    async def sound(self, talk: Talk, *, but: Collection[Fault] = ()) -> None:
        """Raises Broken where a talk that is over shows a fault that the plain one does not show too."""
        talk.ledger.close()
        known = (await self.plain()).ledger.faults
        if known & JOINING:
            known |= JOINING
        for fault in talk.ledger.faults:
            if fault not in known and fault not in but:
                raise talk.broken(talk.ledger.told(fault))

    async def _what_else(self, error: grpc.aio.AioRpcError) -> str:
        """What a server is that has no GetServerInfo."""
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
            return ""
        try:
            services = await self.wire.reflected_services(self.brief)
        except grpc.aio.AioRpcError:
            services = []
        listed = f"; it lists {', '.join(shown(name) for name in services)}" if services else ""
        return (
            f": what answers there has no GetServerInfo of {SERVICE_NAME}; it is no reward server, or one "
            f"that lacks this method{listed}"
        )

    async def _choose(self, info: pb.GetServerInfoResponse) -> pb.Reward:
        wanted = self.settings.reward
        for reward in info.rewards:
            if reward.name == wanted:
                return reward
        if wanted:
            raise InvalidArgumentError.of(
                "reward",
                f"{shown(wanted)} is not on offer; there are "
                f"{', '.join(shown(offered.name) for offered in info.rewards)}",
            )
        if not info.rewards:
            return pb.Reward(name="none")
        if len(info.rewards) == 1:
            return info.rewards[0]
        # The first that opens with the config that there is: another may need one of its own.
        for reward in info.rewards[:_TRIED_REWARDS]:
            selection = pb.RewardSelection(key=KEY, name=reward.name, config_json=self.settings.config_json)
            async with Talk(self.wire, [selection], {}, self.timeout) as talk:
                try:
                    await talk.open()
                except Broken:
                    if talk.ending is None or talk.ending.code is not grpc.StatusCode.INVALID_ARGUMENT:
                        break
                else:
                    return reward
        return info.rewards[0]

    async def _converse(self) -> Plain:
        trouble: Broken | None = None
        patience = _PLAIN_PATIENCE * max(self.timeout, 1.0)
        async with self.talk() as talk:
            try:
                async with asyncio.timeout(patience):
                    await self._hold(talk)
            except Broken as broken:
                trouble = broken
            except TimeoutError:
                trouble = talk.broken(
                    f"frames came again and again, and it was not over after {patience:g} s"
                )
            else:
                await self._read_to_the_end(talk)
            talk.ledger.close()
            return Plain(talk.ledger, talk.exchange, trouble)

    async def _hold(self, talk: Talk) -> None:
        work = self.work
        await talk.open()
        batches = [work.many(6, per_group=3), work.many(4, per_group=2)]
        if work.most >= len(_ODD_IDS):
            batches.append(work.batch(work.group(TEXTS[: len(_ODD_IDS)], ids=_ODD_IDS)))
        await talk.send(*batches)
        await talk.settled(*batches)
        # What still comes of the first ones comes before this one is over.
        last = work.many(2)
        await talk.send(last)
        await talk.settled(last)

    async def _read_to_the_end(self, talk: Talk) -> None:
        try:
            await talk.half_close()
            await talk.ended("the end", self.brief)
        except Broken:
            pass  # R17 is about that


def range_of(reward: pb.Reward) -> Range:
    """The declared bounds of a reward; those of every reward where it declares none."""
    return Range(
        reward.min_value if reward.HasField("min_value") else -LARGEST_VALUE,
        reward.max_value if reward.HasField("max_value") else LARGEST_VALUE,
    )
