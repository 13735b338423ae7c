package com.example.rewards;

import static com.example.rewards.Outcome.shown;

import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.function.Consumer;
import plaudit.reward.v1.RewardServiceOuterClass.Batch;
import plaudit.reward.v1.RewardServiceOuterClass.BatchRejected;
import plaudit.reward.v1.RewardServiceOuterClass.Draining;
import plaudit.reward.v1.RewardServiceOuterClass.Failure;
import plaudit.reward.v1.RewardServiceOuterClass.PromptGroup;
import plaudit.reward.v1.RewardServiceOuterClass.RewardSelection;
import plaudit.reward.v1.RewardServiceOuterClass.ScoreRequest;
import plaudit.reward.v1.RewardServiceOuterClass.ScoreResponse;
import plaudit.reward.v1.RewardServiceOuterClass.SessionOpen;
import plaudit.reward.v1.RewardServiceOuterClass.SessionOpened;

/** What one stream has opened. gRPC calls it from one thread at a time; batches run in those of the executor. */
final class Session implements StreamObserver<ScoreRequest> {
  /** Most completions in flight. */
  private static final int WINDOW = 1024;

  private final Map<String, Reward> rewards;
  private final Executor executor;
  private final StreamObserver<ScoreResponse> responses;
  private final Consumer<Session> onEnd;
  private final Map<String, Reward.Scorer> scorers = new LinkedHashMap<>();
  // What follows is guarded by this, and so is sending: a StreamObserver takes one call at a time.
  private final Map<String, BatchRun> runs = new HashMap<>();
  private int inFlight;
  private boolean isOpen;
  private boolean isDraining;
  private boolean isHalfClosed;
  private boolean isOver;

  Session(
      Map<String, Reward> rewards,
      Executor executor,
      StreamObserver<ScoreResponse> responses,
      Consumer<Session> onEnd) {
    this.rewards = rewards;
    this.executor = executor;
    this.responses = responses;
    this.onEnd = onEnd;
  }

  @Override
  public synchronized void onNext(ScoreRequest request) {
    if (isOver) {
      return;
    }
    switch (request.getFrameCase()) {
      case OPEN -> open(request.getOpen());
      case BATCH -> accept(request.getBatch());
      case CANCEL -> {
        BatchRun run = runs.get(request.getCancel().getBatchId());
        if (run != null) {
          run.cancel();
        }
      }
      default -> { } // a frame of a later revision is ignored
    }
  }

  @Override
  public void onError(Throwable error) {
    abandon();
  }

  @Override
  public synchronized void onCompleted() {
    isHalfClosed = true;
    endIfFinished();
  }

  /** The client is gone: nothing is scored for it any more. */
  synchronized void abandon() {
    end();
    runs.values().forEach(BatchRun::cancel);
  }

  synchronized void drain(Duration grace) {
    isDraining = true;
    if (isOpen) {
      send(ScoreResponse.newBuilder().setDraining(Draining.newBuilder().setGrace(Durations.of(grace))).build());
    }
    endIfFinished();
  }

  synchronized void send(ScoreResponse response) {
    if (!isOver) {
      responses.onNext(response);
    }
  }

  /** Completions have all their results, which are about to be sent. */
  synchronized void finished(int completions) {
    inFlight -= completions;
  }

  synchronized void done(BatchRun run, ScoreResponse last) {
    runs.remove(run.batchId());
    send(last);
    endIfFinished();
  }

  private void open(SessionOpen open) {
    if (isOpen) {
      fail(Status.INVALID_ARGUMENT, "open: came twice; it is the first frame of a stream");
      return;
    }
    if (open.getProtocolVersion() != RewardService.PROTOCOL_VERSION) {
      fail(
          Status.FAILED_PRECONDITION,
          "protocol_version " + open.getProtocolVersion() + " is not spoken here; this server speaks "
              + RewardService.PROTOCOL_VERSION);
      return;
    }
    List<String> wrong = new ArrayList<>();
    if (open.getSessionId().isEmpty()) {
      wrong.add("session_id: is empty");
    }
    if (open.getRewardsCount() == 0) {
      wrong.add("rewards: is empty; select at least one");
    }
    for (int i = 0; i < open.getRewardsCount(); i++) {
      select(open.getRewards(i), "rewards[" + i + "]", wrong);
    }
    if (!wrong.isEmpty()) {
      fail(Status.INVALID_ARGUMENT, String.join("; ", wrong));
      return;
    }
    isOpen = true;
    send(ScoreResponse.newBuilder()
        .setOpened(SessionOpened.newBuilder().setMaxInFlightCompletions(WINDOW))
        .build());
  }

  private void select(RewardSelection selection, String field, List<String> wrong) {
    if (selection.getKey().isEmpty() || scorers.containsKey(selection.getKey())) {
      wrong.add(field + ".key: " + shown(selection.getKey()) + " is empty or taken");
    }
    Reward reward = rewards.get(selection.getName());
    if (reward == null) {
      wrong.add(field + ".name: there is no reward " + shown(selection.getName()));
      return;
    }
    try {
      scorers.put(selection.getKey(), reward.configure(Config.parse(selection.getConfigJson())));
    } catch (ConfigException e) {
      e.wrong().forEach(problem -> wrong.add(field + ".config." + problem));
    }
  }

  private void accept(Batch batch) {
    if (!isOpen) {
      fail(Status.INVALID_ARGUMENT, "open: is missing; it is the first frame of a stream");
      return;
    }
    BatchRun known = runs.get(batch.getBatchId());
    if (known != null && known.isOf(batch)) {
      return; // its results are on their way
    }
    List<String> keys =
        batch.getRewardKeysCount() > 0 ? batch.getRewardKeysList() : List.copyOf(scorers.keySet());
    int count = batch.getGroupsList().stream().mapToInt(PromptGroup::getCompletionsCount).sum();
    Optional<Failure> refusal = refusal(batch, keys, count);
    if (refusal.isPresent()) {
      send(ScoreResponse.newBuilder()
          .setRejected(BatchRejected.newBuilder().setBatchId(batch.getBatchId()).setFailure(refusal.get()))
          .build());
      return;
    }
    Map<String, Reward.Scorer> selected = new LinkedHashMap<>();
    keys.forEach(key -> selected.put(key, scorers.get(key)));
    BatchRun run = new BatchRun(this, batch, selected);
    runs.put(batch.getBatchId(), run);
    inFlight += count;
    executor.execute(run);
  }

  private Optional<Failure> refusal(Batch batch, List<String> keys, int count) {
    Failure.Builder failure = Failure.newBuilder().setCode(Failure.Code.CODE_INVALID);
    Optional<String> unknown = keys.stream().filter(key -> !scorers.containsKey(key)).findFirst();
    if (unknown.isPresent()) {
      return Optional.of(failure.setMessage("reward_keys: the session has no " + shown(unknown.get())).build());
    }
    if (count == 0) {
      return Optional.of(failure.setMessage("groups: there is no completion").build());
    }
    if (runs.containsKey(batch.getBatchId())) {
      failure
          .setCode(Failure.Code.CODE_CONFLICT)
          .setMessage("batch " + batch.getBatchId() + " is being scored, with other content");
      return Optional.of(failure.build());
    }
    failure.setRetryDelay(Durations.of(Duration.ofSeconds(1)));
    if (isDraining) {
      failure.setCode(Failure.Code.CODE_UNAVAILABLE).setMessage("the server is going away; send the batch again later");
      return Optional.of(failure.build());
    }
    if (inFlight > 0 && inFlight + count > WINDOW) {
      failure
          .setCode(Failure.Code.CODE_LIMIT_EXCEEDED)
          .setMessage(count + " completions on top of " + inFlight + " exceed the window of " + WINDOW);
      return Optional.of(failure.build());
    }
    return Optional.empty();
  }

  private void endIfFinished() {
    if (isOver || !runs.isEmpty()) {
      return;
    }
    if (isHalfClosed) {
      responses.onCompleted();
      end();
    } else if (isDraining) {
      fail(Status.UNAVAILABLE, "the server is going away; come again later");
    }
  }

  private void fail(Status status, String description) {
    responses.onError(status.withDescription(description).asRuntimeException());
    end();
  }

  private void end() {
    isOver = true;
    onEnd.accept(this);
  }
}
