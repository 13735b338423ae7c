package com.example.rewards;

import java.math.BigDecimal;
import java.math.MathContext;
import java.util.Optional;

/** An arithmetic expression over + - * / and parentheses, by recursive descent. */
final class Expression {
  // Exact for whatever people write, and bounded for whatever a model writes.
  private static final MathContext PRECISION = new MathContext(100);
  private static final int MOST_DIGITS = 50;
  private static final int MOST_DEPTH = 50;

  private final String text;
  private int at;
  private int depth;
  private int operators;
  private BigDecimal value;

  private Expression(String text) {
    this.text = text;
  }

  /** Empty where the text is no expression as a whole, or divides by zero. */
  static Optional<Expression> parse(String text) {
    Expression expression = new Expression(text);
    try {
      expression.value = expression.sum();
    } catch (IllegalArgumentException | ArithmeticException e) {
      return Optional.empty();
    }
    return expression.peek() == '\0' ? Optional.of(expression) : Optional.empty();
  }

  BigDecimal value() {
    return value;
  }

  /** How many operators with two operands it has. */
  int operators() {
    return operators;
  }

  private BigDecimal sum() {
    BigDecimal left = product();
    while (true) {
      if (takes('+')) {
        left = left.add(product(), PRECISION);
      } else if (takes('-')) {
        left = left.subtract(product(), PRECISION);
      } else {
        return left;
      }
    }
  }

  private BigDecimal product() {
    BigDecimal left = operand();
    while (true) {
      if (takes('*')) {
        left = left.multiply(operand(), PRECISION);
      } else if (takes('/')) {
        left = left.divide(operand(), PRECISION);
      } else {
        return left;
      }
    }
  }

  private boolean takes(char operator) {
    if (peek() != operator) {
      return false;
    }
    at++;
    operators++;
    return true;
  }

  private BigDecimal operand() {
    if (++depth > MOST_DEPTH) {
      throw new IllegalArgumentException("nests too deep");
    }
    BigDecimal operand;
    if (peek() == '-') {
      at++;
      operand = operand().negate();
    } else if (peek() == '(') {
      at++;
      operand = sum();
      if (peek() != ')') {
        throw new IllegalArgumentException("not closed");
      }
      at++;
    } else {
      operand = number();
    }
    depth--;
    return operand;
  }

  private BigDecimal number() {
    int start = at;
    while (at < text.length() && (Character.isDigit(text.charAt(at)) || text.charAt(at) == '.')) {
      at++;
    }
    if (at - start > MOST_DIGITS) {
      throw new IllegalArgumentException("too long");
    }
    return new BigDecimal(text.substring(start, at)); // NumberFormatException is an IllegalArgumentException
  }

  /** The next character that is no space; NUL at the end. */
  private char peek() {
    while (at < text.length() && text.charAt(at) == ' ') {
      at++;
    }
    return at < text.length() ? text.charAt(at) : '\0';
  }
}
