#include "service.h"

#include <atomic>
#include <utility>

namespace rewards {
namespace {

using Clock = std::chrono::steady_clock;
using Stream = grpc::ServerReaderWriter<pb::ScoreResponse, pb::ScoreRequest>;

constexpr std::uint32_t kProtocolVersion = 1;
/// Most completions in flight in a session.
constexpr std::uint32_t kWindow = 1024;
/// What is ready is sent when there is this much of it, or when it has waited this long.
constexpr int kBundleResults = 256;
constexpr auto kBundleWait = std::chrono::milliseconds(20);
/// Time budget of a batch that names none.
constexpr auto kDefaultTimeout = std::chrono::minutes(10);

Clock::time_point DeadlineOf(const pb::Batch& batch) {
  if (!batch.has_timeout()) return Clock::now() + kDefaultTimeout;
  return Clock::now() + std::chrono::seconds(batch.timeout().seconds()) +
         std::chrono::nanoseconds(batch.timeout().nanos());
}

void SetDuration(google::protobuf::Duration& duration, Clock::duration value) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(value);
  duration.set_seconds(seconds.count());
  duration.set_nanos(static_cast<std::int32_t>(std::chrono::nanoseconds(value - seconds).count()));
}

grpc::Status Invalid(const std::string& wrong) { return {grpc::StatusCode::INVALID_ARGUMENT, wrong}; }

grpc::Status GoingAway() { return {grpc::StatusCode::UNAVAILABLE, "the server is going away; come again later"}; }

nlohmann::json ParsedConfig(const std::string& text) {
  auto config = text.empty() ? nlohmann::json::object() : nlohmann::json::parse(text, nullptr, false);
  if (!config.is_object()) throw ConfigError("is no JSON object");
  return config;
}

}  // namespace

/// What one stream has opened.
class RewardService::Session {
 public:
  Session(Stream& stream, const std::map<std::string, Reward>& rewards) : stream_(stream), rewards_(rewards) {}

  /// Answers frames until the client has half-closed, or is gone.
  grpc::Status Run() {
    pb::ScoreRequest request;
    grpc::Status status;
    while (status.ok() && stream_.Read(&request)) {
      switch (request.frame_case()) {
        case pb::ScoreRequest::kOpen:
          status = Open(request.open());
          break;
        case pb::ScoreRequest::kBatch:
          status = Accept(request.batch());
          break;
        default:
          // `cancel` comes here after its batch is done, and other frames are of a later revision.
          break;
      }
    }
    return status;
  }

  /// No new batch is accepted. Comes from another thread.
  void Drain(std::chrono::seconds grace) {
    is_draining_ = true;
    if (!is_open_) return;
    pb::ScoreResponse response;
    SetDuration(*response.mutable_draining()->mutable_grace(), grace);
    Send(response);
  }

 private:
  grpc::Status Open(const pb::SessionOpen& open) {
    if (is_open_) return Invalid("open: came twice; it is the first frame of a stream");
    if (open.protocol_version() != kProtocolVersion) {
      return {grpc::StatusCode::FAILED_PRECONDITION,
              "protocol_version " + std::to_string(open.protocol_version()) +
                  " is not spoken here; this server speaks " + std::to_string(kProtocolVersion)};
    }
    std::string wrong;
    const auto add = [&wrong](const std::string& problem) { wrong += (wrong.empty() ? "" : "; ") + problem; };
    if (open.session_id().empty()) add("session_id: is empty");
    if (open.rewards().empty()) add("rewards: is empty; select at least one");
    for (int i = 0; i < open.rewards_size(); ++i) {
      const auto& selection = open.rewards(i);
      const auto field = "rewards[" + std::to_string(i) + "]";
      if (selection.key().empty() || scorers_.count(selection.key()) > 0) {
        add(field + ".key: " + Shown(selection.key()) + " is empty or taken");
      }
      const auto reward = rewards_.find(selection.name());
      if (reward == rewards_.end()) {
        add(field + ".name: there is no reward " + Shown(selection.name()));
        continue;
      }
      try {
        scorers_[selection.key()] = reward->second.configure(ParsedConfig(selection.config_json()));
        keys_.push_back(selection.key());
      } catch (const ConfigError& error) {
        add(field + ".config." + error.what());
      }
    }
    if (!wrong.empty()) return Invalid(wrong);
    pb::ScoreResponse response;
    response.mutable_opened()->set_max_in_flight_completions(kWindow);
    Send(response);
    is_open_ = true;
    return is_draining_ ? GoingAway() : grpc::Status::OK;
  }

  grpc::Status Accept(const pb::Batch& batch) {
    if (!is_open_) return Invalid("open: is missing; it is the first frame of a stream");
    const auto deadline = DeadlineOf(batch);
    std::vector<std::string> keys(batch.reward_keys().begin(), batch.reward_keys().end());
    if (keys.empty()) keys = keys_;
    pb::ScoreResponse refusal;
    if (Refuses(batch, keys, *refusal.mutable_rejected()->mutable_failure())) {
      refusal.mutable_rejected()->set_batch_id(batch.batch_id());
      Send(refusal);
    } else {
      Score(batch, keys, deadline);
    }
    return grpc::Status::OK;
  }

  bool Refuses(const pb::Batch& batch, const std::vector<std::string>& keys, pb::Failure& failure) const {
    if (is_draining_) {
      failure.set_code(pb::Failure::CODE_UNAVAILABLE);
      failure.set_message("the server is going away; send the batch again later");
      failure.mutable_retry_delay()->set_seconds(1);
      return true;
    }
    failure.set_code(pb::Failure::CODE_INVALID);
    for (const auto& key : keys) {
      if (scorers_.count(key) == 0) {
        failure.set_message("reward_keys: the session has no " + Shown(key));
        return true;
      }
    }
    for (const auto& group : batch.groups()) {
      if (!group.completions().empty()) return false;
    }
    failure.set_message("groups: there is no completion");
    return true;
  }

  /// Sends a result for each completion and key, then done.
  void Score(const pb::Batch& batch, const std::vector<std::string>& keys, Clock::time_point deadline) {
    pb::ScoreResponse last;
    pb::BatchDone& done = *last.mutable_done();
    done.set_batch_id(batch.batch_id());
    pb::ScoreResponse bundle;
    auto sent = Clock::now();
    for (const auto& group : batch.groups()) {
      for (const auto& completion : group.completions()) {
        for (const auto& key : keys) {
          pb::Result& result = *bundle.mutable_results()->add_results();
          result.set_batch_id(batch.batch_id());
          result.set_completion_id(completion.completion_id());
          result.set_reward_key(key);
          ScoreOne(group, completion, scorers_.at(key), deadline, result);
          if (result.has_score()) {
            done.set_scored_count(done.scored_count() + 1);
          } else if (result.has_not_applicable()) {
            done.set_not_applicable_count(done.not_applicable_count() + 1);
          } else {
            done.set_failed_count(done.failed_count() + 1);
          }
        }
        if (bundle.results().results_size() >= kBundleResults || Clock::now() - sent >= kBundleWait) {
          if (!Send(bundle)) return;
          bundle.Clear();
          sent = Clock::now();
        }
      }
    }
    if (bundle.results().results_size() > 0 && !Send(bundle)) return;
    Send(last);
  }

  static void ScoreOne(const pb::PromptGroup& group, const pb::Completion& completion, const Scorer& score,
                       Clock::time_point deadline, pb::Result& result) {
    const auto began = Clock::now();
    if (began > deadline) return SetFailure(result, pb::Failure::CODE_TIMEOUT, "the batch's timeout ran out");
    try {
      score(group, completion, result);
    } catch (const std::exception& error) {
      SetFailure(result, pb::Failure::CODE_INTERNAL, std::string("the reward threw: ") + error.what());
    }
    SetDuration(*result.mutable_scoring_duration(), Clock::now() - began);
  }

  /// False where the client is gone.
  bool Send(const pb::ScoreResponse& response) {
    const std::lock_guard lock(sending_);
    return stream_.Write(response);
  }

  Stream& stream_;
  const std::map<std::string, Reward>& rewards_;
  std::map<std::string, Scorer> scorers_;
  std::vector<std::string> keys_;
  std::atomic<bool> is_open_ = false;
  std::atomic<bool> is_draining_ = false;
  std::mutex sending_;  // a stream takes one Write at a time
};

RewardService::RewardService(std::vector<Reward> rewards, std::uint64_t max_frame_bytes) {
  info_.set_server_name("cpp-rewards");
  info_.set_server_version("1.0.0");
  info_.set_min_protocol_version(kProtocolVersion);
  info_.set_max_protocol_version(kProtocolVersion);
  info_.mutable_limits()->set_max_frame_bytes(max_frame_bytes);
  for (auto& reward : rewards) {
    *info_.add_rewards() = reward.info;
    const std::string name = reward.info.name();
    rewards_.emplace(name, std::move(reward));
  }
}

grpc::Status RewardService::GetServerInfo(grpc::ServerContext*, const pb::GetServerInfoRequest*,
                                          pb::GetServerInfoResponse* response) {
  *response = info_;
  return grpc::Status::OK;
}

grpc::Status RewardService::Score(grpc::ServerContext*, Stream* stream) {
  Session session(*stream, rewards_);
  {
    const std::lock_guard lock(mutex_);
    if (is_draining_) return GoingAway();
    sessions_.insert(&session);
  }
  const grpc::Status status = session.Run();
  const std::lock_guard lock(mutex_);
  sessions_.erase(&session);
  return status;
}

void RewardService::Drain(std::chrono::seconds grace) {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
  for (Session* session : sessions_) session->Drain(grace);
}

}  // namespace rewards
