"""A reward server made from the proto file and grpcio alone. protos/README.md says how to run it."""

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import reward_service_pb2 as pb
import reward_service_pb2_grpc as pb_grpc


def score(group, completion):
    _, tag, rest = completion.text.rpartition("<answer>")
    return tag != "" and rest.partition("</answer>")[0].strip() == str(group.columns["answer"].int_value)


class RewardService(pb_grpc.RewardServiceServicer):
    def GetServerInfo(self, request, context):
        reward = pb.Reward(name="correct", description="1 where the sum is right.", scope="SCOPE_COMPLETION")
        return pb.GetServerInfoResponse(min_protocol_version=1, max_protocol_version=1, rewards=[reward])

    def Score(self, frames, context):
        for frame in frames:
            if frame.HasField("open"):
                keys = [reward.key for reward in frame.open.rewards]
                yield pb.ScoreResponse(opened={"max_in_flight_completions": 256})
            elif frame.HasField("batch"):
                batch_id, wanted = frame.batch.batch_id, frame.batch.reward_keys or keys
                work = [(g, c, key) for g in frame.batch.groups for c in g.completions for key in wanted]
                for g, c, key in reversed(work):
                    result = pb.Result(batch_id=batch_id, completion_id=c.completion_id, reward_key=key)
                    result.score.value = score(g, c)
                    yield pb.ScoreResponse(results={"results": [result]})
                yield pb.ScoreResponse(done={"batch_id": batch_id, "scored_count": len(work)})


server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.http2.max_ping_strikes", 0)])
pb_grpc.add_RewardServiceServicer_to_server(RewardService(), server)
print("port", server.add_insecure_port(sys.argv[1]), flush=True)
server.start()
server.wait_for_termination()
