// The server's side of plaudit.reward.v1.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "reward.h"
#include "reward_service.grpc.pb.h"

namespace rewards {

/// Each stream has a thread, which reads a frame, answers it, and reads the next. So flow control holds the
/// client back, and the timeout of a batch begins when the batch before it is done.
class RewardService final : public pb::RewardService::Service {
 public:
  RewardService(std::vector<Reward> rewards, std::uint64_t max_frame_bytes);

  grpc::Status GetServerInfo(grpc::ServerContext*, const pb::GetServerInfoRequest*,
                             pb::GetServerInfoResponse* response) override;
  grpc::Status Score(grpc::ServerContext*, grpc::ServerReaderWriter<pb::ScoreResponse, pb::ScoreRequest>*) override;

  /// Tells every client to finish and to come back later.
  void Drain(std::chrono::seconds grace);

 private:
  class Session;

  std::map<std::string, Reward> rewards_;
  pb::GetServerInfoResponse info_;
  std::mutex mutex_;
  std::set<Session*> sessions_;
  bool is_draining_ = false;
};

}  // namespace rewards
