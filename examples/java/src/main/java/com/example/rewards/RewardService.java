package com.example.rewards;

import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import plaudit.reward.v1.RewardServiceGrpc;
import plaudit.reward.v1.RewardServiceOuterClass.Capabilities;
import plaudit.reward.v1.RewardServiceOuterClass.GetServerInfoRequest;
import plaudit.reward.v1.RewardServiceOuterClass.GetServerInfoResponse;
import plaudit.reward.v1.RewardServiceOuterClass.Limits;
import plaudit.reward.v1.RewardServiceOuterClass.ScoreRequest;
import plaudit.reward.v1.RewardServiceOuterClass.ScoreResponse;

/** The server's side of plaudit.reward.v1. */
final class RewardService extends RewardServiceGrpc.RewardServiceImplBase {
  static final int PROTOCOL_VERSION = 1;

  private final Map<String, Reward> rewards = new LinkedHashMap<>();
  private final Executor executor;
  private final GetServerInfoResponse info;
  private final Set<Session> sessions = ConcurrentHashMap.newKeySet();

  RewardService(List<Reward> offered, int maxFrameBytes, Executor executor) {
    this.executor = executor;
    GetServerInfoResponse.Builder description =
        GetServerInfoResponse.newBuilder()
            .setServerName("java-rewards")
            .setServerVersion("1.0.0")
            .setMinProtocolVersion(PROTOCOL_VERSION)
            .setMaxProtocolVersion(PROTOCOL_VERSION)
            .setLimits(Limits.newBuilder().setMaxFrameBytes(maxFrameBytes))
            .setCapabilities(Capabilities.newBuilder().setCancellation(true));
    for (Reward reward : offered) {
      rewards.put(reward.info().getName(), reward);
      description.addRewards(reward.info());
    }
    info = description.build();
  }

  @Override
  public void getServerInfo(GetServerInfoRequest request, StreamObserver<GetServerInfoResponse> observer) {
    observer.onNext(info);
    observer.onCompleted();
  }

  @Override
  public StreamObserver<ScoreRequest> score(StreamObserver<ScoreResponse> observer) {
    ServerCallStreamObserver<ScoreResponse> responses = (ServerCallStreamObserver<ScoreResponse>) observer;
    Session session = new Session(rewards, executor, responses, sessions::remove);
    sessions.add(session);
    responses.setOnCancelHandler(session::abandon);
    return session;
  }

  /** Tells every client to finish and to come back later. */
  void drain(Duration grace) {
    sessions.forEach(session -> session.drain(grace));
  }
}
