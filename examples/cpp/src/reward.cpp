#include "reward.h"

#include <algorithm>
#include <utility>

namespace rewards {

void SetScore(pb::Result& result, double value, std::string explanation) {
  result.mutable_score()->set_value(value);
  result.mutable_score()->set_explanation(std::move(explanation));
}

void SetNotApplicable(pb::Result& result, std::string reason) {
  result.mutable_not_applicable()->set_reason(std::move(reason));
}

void SetFailure(pb::Result& result, pb::Failure::Code code, std::string message) {
  result.mutable_failure()->set_code(code);
  result.mutable_failure()->set_message(std::move(message));
}

void RefuseUnknownFields(const nlohmann::json& config, const std::vector<std::string_view>& known) {
  std::string wrong;
  for (const auto& [field, _] : config.items()) {
    if (std::find(known.begin(), known.end(), field) == known.end()) {
      wrong += (wrong.empty() ? "" : "; ") + Shown(field) + ": there is no such field";
    }
  }
  if (!wrong.empty()) throw ConfigError(wrong);
}

std::string Shown(std::string_view text) {
  constexpr std::size_t kMostBytes = 80;
  const bool is_long = text.size() > kMostBytes;
  if (is_long) {
    std::size_t end = kMostBytes;
    // A byte 10xxxxxx goes on with a character that began before.
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  return '"' + std::string(text) + (is_long ? "…\"" : "\"");
}

}  // namespace rewards
