package com.example.rewards;

import java.util.List;

/** Names every wrong field of a config, each as "field: what is wrong". */
final class ConfigException extends Exception {
  private static final long serialVersionUID = 1L;

  private final transient List<String> wrong;

  ConfigException(List<String> wrong) {
    super(String.join("; ", wrong));
    this.wrong = List.copyOf(wrong);
  }

  List<String> wrong() {
    return wrong;
  }
}
