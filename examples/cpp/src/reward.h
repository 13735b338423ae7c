// What a reward is, and how it answers.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "reward_service.pb.h"

namespace rewards {

namespace pb = plaudit::reward::v1;

/// Names what is wrong with a config, field by field.
class ConfigError : public std::invalid_argument {
 public:
  explicit ConfigError(const std::string& wrong) : std::invalid_argument(wrong) {}
};

/// Scores one completion of a prompt: gives `result` exactly one outcome.
using Scorer = std::function<void(const pb::PromptGroup&, const pb::Completion&, pb::Result& result)>;

/// A reward on offer.
struct Reward {
  pb::Reward info;
  /// Makes the scorer of a session. Throws ConfigError.
  std::function<Scorer(const nlohmann::json& config)> configure;
};

Reward AnswerTag();
Reward Chrf();

void SetScore(pb::Result& result, double value, std::string explanation = "");
void SetNotApplicable(pb::Result& result, std::string reason);
void SetFailure(pb::Result& result, pb::Failure::Code code, std::string message);

/// Refuses fields of a config that are not among `known`.
void RefuseUnknownFields(const nlohmann::json& config, const std::vector<std::string_view>& known);

/// Quotes a text for people, shortened to whole characters.
std::string Shown(std::string_view text);

}  // namespace rewards
