#include <algorithm>
#include <cstdlib>
#include <optional>
#include <regex>
#include <utility>

#include "reward.h"

namespace rewards {
namespace {

constexpr std::size_t kMostDigits = 100;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Decimal text without needless zeros, so that equal numbers are equal texts. Nothing where it is no number.
std::optional<std::string> Normalized(std::string_view text) {
  text = Trimmed(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto point = text.find('.');
  std::string_view whole = text.substr(0, point);
  std::string_view fraction = point == std::string_view::npos ? std::string_view{} : text.substr(point + 1);
  const auto is_number = [](std::string_view digits) {
    return !digits.empty() && digits.size() <= kMostDigits && std::all_of(digits.begin(), digits.end(), IsDigit);
  };
  if (!is_number(whole) || (point != std::string_view::npos && !is_number(fraction))) return std::nullopt;
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size() - 1));
  fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  std::string number(whole);
  if (!fraction.empty()) number.append(1, '.').append(fraction);
  return negative && number != "0" ? '-' + number : number;
}

/// Tells whether an answer, as normalized text, is the column's number. Empty where the column holds none.
std::function<bool(const std::string& answer)> Comparison(const pb::ColumnValue& column) {
  std::optional<std::string> expected;
  switch (column.kind_case()) {
    case pb::ColumnValue::kDoubleValue:
      return [value = column.double_value()](const std::string& answer) {
        return std::strtod(answer.c_str(), nullptr) == value;
      };
    case pb::ColumnValue::kIntValue:
      expected = std::to_string(column.int_value());
      break;
    case pb::ColumnValue::kStringValue:
      expected = Normalized(column.string_value());
      break;
    case pb::ColumnValue::kJsonValue:  // a whole number beyond 64 bits
      expected = Normalized(column.json_value());
      break;
    default:
      break;
  }
  if (!expected) return nullptr;
  return [expected = *std::move(expected)](const std::string& answer) { return answer == expected; };
}

/// The text of the last tag that is closed.
std::optional<std::string_view> LastTagged(std::string_view text, const std::string& tag) {
  const std::string opening = "<" + tag + ">";
  const auto end = text.rfind("</" + tag + ">");
  if (end == std::string_view::npos) return std::nullopt;
  text = text.substr(0, end);
  const auto start = text.rfind(opening);
  if (start == std::string_view::npos) return std::nullopt;
  return text.substr(start + opening.size());
}

void Score(const std::string& tag, const pb::PromptGroup& group, const pb::Completion& completion,
           pb::Result& result) {
  const auto column = group.columns().find("answer");
  if (column == group.columns().end()) {
    return SetFailure(result, pb::Failure::CODE_INVALID, "column answer is missing");
  }
  if (column->second.kind_case() == pb::ColumnValue::KIND_NOT_SET) {
    return SetNotApplicable(result, "column answer is null");
  }
  const auto is_right = Comparison(column->second);
  if (!is_right) {
    const auto value = Shown(column->second.ShortDebugString());
    return SetFailure(result, pb::Failure::CODE_INVALID, "column answer holds " + value + ", which is no number");
  }
  const std::string whole = completion.prefill() + completion.text();
  const auto text = LastTagged(whole, tag);
  if (!text) return SetScore(result, 0, "no <" + tag + "> tag that is closed");
  const auto answer = Normalized(*text);
  if (!answer) return SetScore(result, 0, Shown(*text) + " is no number");
  if (!is_right(*answer)) return SetScore(result, 0, Shown(*text) + " is not the answer");
  SetScore(result, 1);
}

}  // namespace

Reward AnswerTag() {
  Reward reward;
  reward.info.set_name("answer_tag");
  reward.info.set_description("1 where the number in the last <answer> tag equals column answer, else 0.");
  reward.info.set_scope(pb::Reward::SCOPE_COMPLETION);
  reward.info.set_min_value(0);
  reward.info.set_max_value(1);
  reward.info.set_deterministic(true);
  reward.info.add_required_columns("answer");
  reward.info.set_config_schema_json(R"({"type": "object", "additionalProperties": false, "properties": {
    "tag": {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$", "default": "answer",
            "description": "Name of the tag."}}})");
  reward.configure = [](const nlohmann::json& config) -> Scorer {
    static const std::regex kTag("[A-Za-z][A-Za-z0-9_-]{0,62}");
    RefuseUnknownFields(config, {"tag"});
    const auto tag = config.value("tag", nlohmann::json("answer"));
    if (!tag.is_string() || !std::regex_match(tag.get_ref<const std::string&>(), kTag)) {
      throw ConfigError("tag: " + Shown(tag.dump()) + " is no name of a tag");
    }
    return [tag = tag.get<std::string>()](const auto& group, const auto& completion, auto& result) {
      Score(tag, group, completion, result);
    };
  };
  return reward;
}

}  // namespace rewards
