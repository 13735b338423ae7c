package com.example.rewards;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Finds equations between arithmetic expressions in prose. */
final class Equations {
  /** Both sides of an equation, evaluated, and how it stood in the text. */
  record Equation(String text, BigDecimal left, BigDecimal right) {
    boolean holds(BigDecimal tolerance) {
      return left.subtract(right).abs().compareTo(tolerance) <= 0;
    }
  }

  private Equations() {}

  /** Every equation that has an operator on a side; in a = b = c there are two. What is none is passed over. */
  static List<Equation> in(String text) {
    List<Equation> found = new ArrayList<>();
    int start = 0;
    while (start < text.length()) {
      int end = start;
      while (end < text.length() && isArithmetic(text, end)) {
        end++;
      }
      if (end > start) {
        read(text, start, end, found);
      }
      start = Math.max(end, start + 1);
    }
    return found;
  }

  private static void read(String text, int start, int end, List<Equation> found) {
    // In "y - 3 + 4 = 9" and "2 = 8x" a part of a side is out of sight.
    boolean isCutBefore = start > 0 && text.charAt(start - 1) != '\n';
    boolean isCutAfter = end < text.length() && Character.isLetter(text.charAt(end));
    String[] sides = text.substring(start, end).split("=", -1);
    for (int i = 0; i + 1 < sides.length; i++) {
      String left = tidied(sides[i]);
      String right = tidied(sides[i + 1]);
      if (i == 0 && isCutBefore && !left.isEmpty() && "+-*/".indexOf(left.charAt(0)) >= 0
          || i + 2 == sides.length && isCutAfter && !sides[i + 1].endsWith(" ")) {
        continue;
      }
      Optional<Expression> leftSide = Expression.parse(left);
      Optional<Expression> rightSide = Expression.parse(right);
      if (leftSide.isPresent() && rightSide.isPresent()
          && (leftSide.get().operators() > 0 || rightSide.get().operators() > 0)) {
        found.add(new Equation(left + " = " + right, leftSide.get().value(), rightSide.get().value()));
      }
    }
  }

  private static boolean isArithmetic(String text, int index) {
    char c = text.charAt(index);
    return isDigit(c) || " +-*/().=×÷−$€£".indexOf(c) >= 0 || c == ',' && separatesThousands(text, index);
  }

  /** Whether a comma stands between a digit and exactly three digits. */
  private static boolean separatesThousands(String text, int comma) {
    if (comma == 0 || comma + 3 >= text.length() || !isDigit(text.charAt(comma - 1))) {
      return false;
    }
    return isDigit(text.charAt(comma + 1)) && isDigit(text.charAt(comma + 2)) && isDigit(text.charAt(comma + 3))
        && (comma + 4 == text.length() || !isDigit(text.charAt(comma + 4)));
  }

  private static String tidied(String side) {
    String tidy = side.replace('×', '*').replace('÷', '/').replace('−', '-').replaceAll("[,$€£]", "").strip();
    // The full stop of the sentence.
    return tidy.endsWith(".") ? tidy.substring(0, tidy.length() - 1).stripTrailing() : tidy;
  }

  private static boolean isDigit(char c) {
    return c >= '0' && c <= '9';
  }
}
