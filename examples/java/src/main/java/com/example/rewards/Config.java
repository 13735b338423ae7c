package com.example.rewards;

import static com.example.rewards.Outcome.shown;

import com.google.gson.Gson;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonPrimitive;
import com.google.gson.TypeAdapter;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import java.io.IOException;
import java.io.StringReader;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;

/** Reads the fields of a config, and collects what is wrong with them. */
final class Config {
  private static final TypeAdapter<JsonObject> OBJECTS = new Gson().getAdapter(JsonObject.class);

  private final JsonObject given;
  private final List<String> wrong = new ArrayList<>();

  Config(JsonObject given, Set<String> known) {
    this.given = given;
    for (String field : given.keySet()) {
      if (!known.contains(field)) {
        wrong.add(shown(field) + ": there is no such field");
      }
    }
  }

  /** The JSON object in a text; empty text is an empty object. */
  static JsonObject parse(String text) throws ConfigException {
    if (text.isEmpty()) {
      return new JsonObject();
    }
    // The adapter, unlike JsonParser, takes JSON alone.
    try (JsonReader reader = new JsonReader(new StringReader(text))) {
      JsonObject object = OBJECTS.read(reader);
      if (reader.peek() == JsonToken.END_DOCUMENT) {
        return object;
      }
    } catch (IOException | JsonParseException | ClassCastException e) {
      throw new ConfigException(List.of("is no JSON object: " + shown(String.valueOf(e.getMessage()))));
    }
    throw new ConfigException(List.of("has text after the JSON object"));
  }

  String text(String field, Pattern pattern, String absent) {
    JsonElement value = given.get(field);
    if (value == null) {
      return absent;
    }
    if (value instanceof JsonPrimitive primitive && primitive.isString()
        && pattern.matcher(primitive.getAsString()).matches()) {
      return primitive.getAsString();
    }
    wrong.add(field + ": " + shown(value.toString()) + " does not match " + pattern);
    return absent;
  }

  BigDecimal number(String field, BigDecimal least, BigDecimal most, BigDecimal absent) {
    JsonElement value = given.get(field);
    if (value == null) {
      return absent;
    }
    if (value instanceof JsonPrimitive primitive && primitive.isNumber()) {
      BigDecimal number = primitive.getAsBigDecimal();
      if (number.compareTo(least) >= 0 && number.compareTo(most) <= 0) {
        return number;
      }
    }
    wrong.add(field + ": " + shown(value.toString()) + " is no number from " + least + " to " + most);
    return absent;
  }

  int wholeNumber(String field, int least, int most, int absent) {
    BigDecimal number =
        number(field, BigDecimal.valueOf(least), BigDecimal.valueOf(most), BigDecimal.valueOf(absent));
    if (number.stripTrailingZeros().scale() > 0) {
      wrong.add(field + ": " + number + " is no whole number");
    }
    return number.intValue();
  }

  /** Throws where anything was wrong. */
  void check() throws ConfigException {
    if (!wrong.isEmpty()) {
      throw new ConfigException(wrong);
    }
  }
}
