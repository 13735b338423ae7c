package com.example.rewards;

import java.time.Duration;

/** Between the durations of Java and of protobuf. */
final class Durations {
  private Durations() {}

  static com.google.protobuf.Duration of(Duration duration) {
    return com.google.protobuf.Duration.newBuilder()
        .setSeconds(duration.getSeconds())
        .setNanos(duration.getNano())
        .build();
  }

  static Duration from(com.google.protobuf.Duration duration) {
    return Duration.ofSeconds(duration.getSeconds(), duration.getNanos());
  }
}
