// chrF: how many character n-grams two texts share (Popović 2015), as an F-score that weighs recall.
#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "reward.h"

namespace rewards {
namespace {

constexpr int kDefaultOrder = 6;
constexpr double kDefaultBeta = 2;

using Counts = std::unordered_map<std::u32string_view, std::int64_t>;

bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// The characters of a text without space. A string of protobuf is valid UTF-8.
std::u32string Characters(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    char32_t c = length == 1 ? lead : lead & (0x7F >> length);
    for (int k = 1; k < length; ++k) c = (c << 6) | (static_cast<unsigned char>(text[i + k]) & 0x3F);
    i += length;
    if (!IsSpace(c)) characters.push_back(c);
  }
  return characters;
}

Counts NGrams(std::u32string_view text, std::size_t order) {
  Counts counts;
  if (text.size() < order) return counts;
  counts.reserve(text.size() - order + 1);
  for (std::size_t i = 0; i + order <= text.size(); ++i) ++counts[text.substr(i, order)];
  return counts;
}

double FScore(const std::u32string& hypothesis, const std::u32string& reference, int max_order, double beta) {
  double precision = 0, recall = 0;
  int orders = 0;
  for (int n = 1; n <= max_order; ++n) {
    const std::size_t order = n;
    if (hypothesis.size() < order || reference.size() < order) break;
    const Counts wanted = NGrams(reference, order);
    std::int64_t shared = 0;
    for (const auto& [gram, count] : NGrams(hypothesis, order)) {
      const auto found = wanted.find(gram);
      if (found != wanted.end()) shared += std::min(count, found->second);
    }
    precision += static_cast<double>(shared) / static_cast<double>(hypothesis.size() - order + 1);
    recall += static_cast<double>(shared) / static_cast<double>(reference.size() - order + 1);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  const double factor = beta * beta;
  return std::min(1.0, (1 + factor) * precision * recall / (factor * precision + recall));
}

}  // namespace

Reward Chrf() {
  Reward reward;
  reward.info.set_name("chrf");
  reward.info.set_description("Character n-gram F-score (chrF) of the completion against column reference.");
  reward.info.set_scope(pb::Reward::SCOPE_COMPLETION);
  reward.info.set_min_value(0);
  reward.info.set_max_value(1);
  reward.info.set_deterministic(true);
  reward.info.add_required_columns("reference");
  reward.info.set_config_schema_json(R"({"type": "object", "additionalProperties": false, "properties": {
    "max_order": {"type": "integer", "minimum": 1, "maximum": 10, "default": 6,
                  "description": "Longest n-gram, in characters."},
    "beta": {"type": "number", "minimum": 0.1, "maximum": 10, "default": 2,
             "description": "How many times recall counts more than precision."}}})");
  reward.configure = [](const nlohmann::json& config) -> Scorer {
    RefuseUnknownFields(config, {"max_order", "beta"});
    const auto max_order = config.value("max_order", nlohmann::json(kDefaultOrder));
    if (!max_order.is_number_integer() || max_order < 1 || max_order > 10) {
      throw ConfigError("max_order: " + Shown(max_order.dump()) + " is no whole number from 1 to 10");
    }
    const auto beta = config.value("beta", nlohmann::json(kDefaultBeta));
    if (!beta.is_number() || beta < 0.1 || beta > 10) {
      throw ConfigError("beta: " + Shown(beta.dump()) + " is no number from 0.1 to 10");
    }
    return [max_order = max_order.get<int>(), beta = beta.get<double>()](
               const pb::PromptGroup& group, const pb::Completion& completion, pb::Result& result) {
      const auto column = group.columns().find("reference");
      if (column == group.columns().end()) {
        return SetFailure(result, pb::Failure::CODE_INVALID, "column reference is missing");
      }
      if (column->second.kind_case() == pb::ColumnValue::KIND_NOT_SET) {
        return SetNotApplicable(result, "column reference is null");
      }
      if (!column->second.has_string_value()) {
        return SetFailure(result, pb::Failure::CODE_INVALID, "column reference holds no text");
      }
      SetScore(result, FScore(Characters(completion.text()), Characters(column->second.string_value()), max_order,
                              beta));
    };
  };
  return reward;
}

}  // namespace rewards
