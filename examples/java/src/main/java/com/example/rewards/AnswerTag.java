package com.example.rewards;

import static com.example.rewards.Outcome.shown;

import com.example.rewards.Outcome.Failed;
import com.example.rewards.Outcome.Inapplicable;
import com.example.rewards.Outcome.Scored;
import com.google.gson.JsonObject;
import java.math.BigDecimal;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import plaudit.reward.v1.RewardServiceOuterClass;
import plaudit.reward.v1.RewardServiceOuterClass.ColumnValue;
import plaudit.reward.v1.RewardServiceOuterClass.Completion;
import plaudit.reward.v1.RewardServiceOuterClass.Failure;
import plaudit.reward.v1.RewardServiceOuterClass.PromptGroup;

/** 1 where the number in the last answer tag equals column answer, else 0. */
final class AnswerTag implements Reward {
  private static final Pattern TAG = Pattern.compile("[A-Za-z][A-Za-z0-9_-]{0,62}");
  // No exponent: 1e999999999 would be a number of a billion digits.
  private static final Pattern NUMBER = Pattern.compile("[+-]?\\d{1,100}(\\.\\d{1,100})?");

  @Override
  public RewardServiceOuterClass.Reward info() {
    return RewardServiceOuterClass.Reward.newBuilder()
        .setName("answer_tag")
        .setDescription("1 where the number in the last <answer> tag equals column answer, else 0.")
        .setScope(RewardServiceOuterClass.Reward.Scope.SCOPE_COMPLETION)
        .setMinValue(0)
        .setMaxValue(1)
        .setDeterministic(true)
        .addRequiredColumns("answer")
        .setConfigSchemaJson(
            """
            {"type": "object", "additionalProperties": false, "properties": {
              "tag": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$", "default": "answer",
                      "description": "Name of the tag."}}}
            """)
        .build();
  }

  @Override
  public Scorer configure(JsonObject given) throws ConfigException {
    Config config = new Config(given, Set.of("tag"));
    String tag = config.text("tag", TAG, "answer");
    config.check();
    return (group, completion) -> score(tag, group, completion);
  }

  private static Outcome score(String tag, PromptGroup group, Completion completion) {
    ColumnValue column = group.getColumnsMap().get("answer");
    if (column == null) {
      return new Failed(Failure.Code.CODE_INVALID, "column answer is missing");
    }
    if (column.getKindCase() == ColumnValue.KindCase.KIND_NOT_SET) {
      return new Inapplicable("column answer is null");
    }
    Optional<Predicate<BigDecimal>> isRight = comparison(column);
    if (isRight.isEmpty()) {
      String value = shown(column.toString().strip());
      return new Failed(Failure.Code.CODE_INVALID, "column answer holds " + value + ", which is no number");
    }
    Optional<String> text = lastTagged(completion.getPrefill() + completion.getText(), tag);
    if (text.isEmpty()) {
      return new Scored(0, "no <" + tag + "> tag that is closed");
    }
    Optional<BigDecimal> answer = parsed(text.get());
    if (answer.isEmpty()) {
      return new Scored(0, shown(text.get()) + " is no number");
    }
    return isRight.get().test(answer.get())
        ? new Scored(1)
        : new Scored(0, shown(text.get()) + " is not the answer");
  }

  /** Tells whether an answer is the column's number; empty where the column holds none. */
  private static Optional<Predicate<BigDecimal>> comparison(ColumnValue column) {
    return switch (column.getKindCase()) {
      case INT_VALUE -> Optional.of(equalTo(BigDecimal.valueOf(column.getIntValue())));
      case DOUBLE_VALUE -> Optional.of(answer -> answer.doubleValue() == column.getDoubleValue());
      case STRING_VALUE -> parsed(column.getStringValue()).map(AnswerTag::equalTo);
      case JSON_VALUE -> parsed(column.getJsonValue()).map(AnswerTag::equalTo); // beyond 64 bits
      default -> Optional.empty();
    };
  }

  private static Predicate<BigDecimal> equalTo(BigDecimal expected) {
    // Not equals: 72 and 72.0 are the same number.
    return answer -> answer.compareTo(expected) == 0;
  }

  private static Optional<BigDecimal> parsed(String text) {
    String number = text.strip();
    return NUMBER.matcher(number).matches() ? Optional.of(new BigDecimal(number)) : Optional.empty();
  }

  /** The text of the last tag that is closed. */
  private static Optional<String> lastTagged(String text, String tag) {
    String opening = "<" + tag + ">";
    int end = text.lastIndexOf("</" + tag + ">");
    int start = end < 0 ? -1 : text.lastIndexOf(opening, end - opening.length());
    return start < 0 ? Optional.empty() : Optional.of(text.substring(start + opening.length(), end));
  }
}
