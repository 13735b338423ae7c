package com.example.rewards;

import com.example.rewards.Outcome.Failed;
import java.time.Duration;
import java.util.Map;
import plaudit.reward.v1.RewardServiceOuterClass.Batch;
import plaudit.reward.v1.RewardServiceOuterClass.BatchDone;
import plaudit.reward.v1.RewardServiceOuterClass.Completion;
import plaudit.reward.v1.RewardServiceOuterClass.Failure;
import plaudit.reward.v1.RewardServiceOuterClass.PromptGroup;
import plaudit.reward.v1.RewardServiceOuterClass.Result;
import plaudit.reward.v1.RewardServiceOuterClass.Results;
import plaudit.reward.v1.RewardServiceOuterClass.ScoreResponse;

/** Scores one batch: a result for each completion and key, then done. */
final class BatchRun implements Runnable {
  /** What is ready is sent when there is this much of it, or when it has waited this long. */
  private static final int BUNDLE_RESULTS = 256;

  private static final Duration BUNDLE_WAIT = Duration.ofMillis(20);
  private static final Duration DEFAULT_TIMEOUT = Duration.ofMinutes(10);

  private final Session session;
  private final Batch batch;
  private final Map<String, Reward.Scorer> scorers;
  private final long deadline;
  private final BatchDone.Builder done;
  private volatile boolean isCancelled;

  BatchRun(Session session, Batch batch, Map<String, Reward.Scorer> scorers) {
    this.session = session;
    this.batch = batch;
    this.scorers = scorers;
    Duration timeout = batch.hasTimeout() ? Durations.from(batch.getTimeout()) : DEFAULT_TIMEOUT;
    this.deadline = System.nanoTime() + timeout.toNanos();
    this.done = BatchDone.newBuilder().setBatchId(batch.getBatchId());
  }

  String batchId() {
    return batch.getBatchId();
  }

  /** Whether a batch has the same content, of what may not change under an id. */
  boolean isOf(Batch other) {
    return batch.getGroupsList().equals(other.getGroupsList())
        && batch.getRewardKeysList().equals(other.getRewardKeysList());
  }

  void cancel() {
    isCancelled = true;
  }

  @Override
  public void run() {
    Results.Builder bundle = Results.newBuilder();
    int finished = 0;
    long sent = System.nanoTime();
    for (PromptGroup group : batch.getGroupsList()) {
      for (Completion completion : group.getCompletionsList()) {
        scorers.forEach((key, scorer) -> bundle.addResults(result(group, completion, key, scorer)));
        finished++;
        if (bundle.getResultsCount() >= BUNDLE_RESULTS || System.nanoTime() - sent >= BUNDLE_WAIT.toNanos()) {
          flush(bundle, finished);
          finished = 0;
          sent = System.nanoTime();
        }
      }
    }
    flush(bundle, finished);
    session.done(this, ScoreResponse.newBuilder().setDone(done).build());
  }

  private void flush(Results.Builder bundle, int finished) {
    if (bundle.getResultsCount() > 0) {
      session.finished(finished); // before the client can know it
      session.send(ScoreResponse.newBuilder().setResults(bundle).build());
      bundle.clear();
    }
  }

  private Result result(PromptGroup group, Completion completion, String key, Reward.Scorer scorer) {
    long began = System.nanoTime();
    Result.Builder result =
        Result.newBuilder()
            .setBatchId(batch.getBatchId())
            .setCompletionId(completion.getCompletionId())
            .setRewardKey(key);
    outcome(group, completion, scorer).writeTo(result);
    switch (result.getOutcomeCase()) {
      case SCORE -> done.setScoredCount(done.getScoredCount() + 1);
      case NOT_APPLICABLE -> done.setNotApplicableCount(done.getNotApplicableCount() + 1);
      default -> done.setFailedCount(done.getFailedCount() + 1);
    }
    return result.setScoringDuration(Durations.of(Duration.ofNanos(System.nanoTime() - began))).build();
  }

  private Outcome outcome(PromptGroup group, Completion completion, Reward.Scorer scorer) {
    if (isCancelled) {
      return new Failed(Failure.Code.CODE_CANCELLED, "the client cancelled the batch");
    }
    if (System.nanoTime() - deadline > 0) {
      return new Failed(Failure.Code.CODE_TIMEOUT, "the batch's timeout ran out");
    }
    try {
      return scorer.score(group, completion);
    } catch (RuntimeException e) {
      return new Failed(Failure.Code.CODE_INTERNAL, "the reward threw " + e);
    }
  }
}
