package com.example.rewards;

import static com.example.rewards.Outcome.shown;

import com.example.rewards.Outcome.Scored;
import com.google.gson.JsonObject;
import java.math.BigDecimal;
import java.util.Set;
import plaudit.reward.v1.RewardServiceOuterClass;

/** The share of the equations in a completion that are true, in exact arithmetic: a check of every step. */
final class EquationsHold implements Reward {
  private static final BigDecimal MOST_TOLERANCE = BigDecimal.valueOf(1_000_000);

  @Override
  public RewardServiceOuterClass.Reward info() {
    return RewardServiceOuterClass.Reward.newBuilder()
        .setName("equations_hold")
        .setDescription(
            "Share of the equations between numbers in the completion, such as 3 * (4 + 1) = 15, that are true.")
        .setScope(RewardServiceOuterClass.Reward.Scope.SCOPE_COMPLETION)
        .setMinValue(0)
        .setMaxValue(1)
        .setDeterministic(true)
        .setConfigSchemaJson(
            """
            {"type": "object", "additionalProperties": false, "properties": {
              "tolerance": {"type": "number", "minimum": 0, "maximum": 1000000, "default": 0,
                            "description": "How far both sides may be apart, for rounded results."},
              "min_equations": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 1,
                                "description": "At least so many are counted; missing ones are wrong."}}}
            """)
        .build();
  }

  @Override
  public Scorer configure(JsonObject given) throws ConfigException {
    Config config = new Config(given, Set.of("tolerance", "min_equations"));
    BigDecimal tolerance = config.number("tolerance", BigDecimal.ZERO, MOST_TOLERANCE, BigDecimal.ZERO);
    int minEquations = config.wholeNumber("min_equations", 1, 1000, 1);
    config.check();
    return (group, completion) -> score(completion.getText(), tolerance, minEquations);
  }

  private static Outcome score(String text, BigDecimal tolerance, int minEquations) {
    int count = 0;
    int right = 0;
    String firstWrong = "";
    for (Equations.Equation equation : Equations.in(text)) {
      count++;
      if (equation.holds(tolerance)) {
        right++;
      } else if (firstWrong.isEmpty()) {
        firstWrong = "; wrong: " + shown(equation.text());
      }
    }
    double value = (double) right / Math.max(count, minEquations);
    return new Scored(value, right + " of " + count + " equations hold" + firstWrong);
  }
}
