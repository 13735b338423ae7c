package com.example.rewards;

import com.google.gson.JsonObject;
import plaudit.reward.v1.RewardServiceOuterClass.Completion;
import plaudit.reward.v1.RewardServiceOuterClass.PromptGroup;

/** A reward on offer. */
interface Reward {
  /** Describes it to clients. */
  plaudit.reward.v1.RewardServiceOuterClass.Reward info();

  /** Makes the scorer of a session. */
  Scorer configure(JsonObject config) throws ConfigException;

  /** Scores one completion of a prompt. Several threads may use it at once. */
  @FunctionalInterface
  interface Scorer {
    Outcome score(PromptGroup group, Completion completion);
  }
}
