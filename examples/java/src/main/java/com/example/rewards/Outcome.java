package com.example.rewards;

import plaudit.reward.v1.RewardServiceOuterClass.Failure;
import plaudit.reward.v1.RewardServiceOuterClass.NotApplicable;
import plaudit.reward.v1.RewardServiceOuterClass.Result;
import plaudit.reward.v1.RewardServiceOuterClass.Score;

/** What came of one reward for one completion. */
sealed interface Outcome {
  void writeTo(Result.Builder result);

  /** The reward's value. */
  record Scored(double value, String explanation) implements Outcome {
    Scored(double value) {
      this(value, "");
    }

    @Override
    public void writeTo(Result.Builder result) {
      result.setScore(Score.newBuilder().setValue(value).setExplanation(explanation));
    }
  }

  /** The reward does not apply to the row. */
  record Inapplicable(String reason) implements Outcome {
    @Override
    public void writeTo(Result.Builder result) {
      result.setNotApplicable(NotApplicable.newBuilder().setReason(reason));
    }
  }

  /** It could not be scored, which is never the number 0. */
  record Failed(Failure.Code code, String message) implements Outcome {
    @Override
    public void writeTo(Result.Builder result) {
      result.setFailure(Failure.newBuilder().setCode(code).setMessage(message));
    }
  }

  /** Quotes a text for people, shortened. */
  static String shown(String text) {
    int most = 80;
    if (text.codePointCount(0, text.length()) <= most) {
      return '"' + text + '"';
    }
    return '"' + text.substring(0, text.offsetByCodePoints(0, most)) + "…\"";
  }
}
