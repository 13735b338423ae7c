// reward-server [HOST:PORT], or the address in REWARD_ADDRESS.
// Port 0 takes a free one; the first line on stdout says which.
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <signal.h>

#include <cstdlib>
#include <iostream>

#include "service.h"

namespace {

constexpr int kMaxFrameBytes = 16 * 1024 * 1024;
/// How long accepted work is still served after SIGTERM.
constexpr std::chrono::seconds kGrace{10};

std::string Address(int argc, char** argv) {
  if (argc > 1) return argv[1];
  if (const char* given = std::getenv("REWARD_ADDRESS")) return given;
  return "127.0.0.1:50061";
}

}  // namespace

int main(int argc, char** argv) {
  // Blocked before any thread is made, so that the signals wait for sigwait below.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);

  const std::string address = Address(argc, argv);
  rewards::RewardService service({rewards::AnswerTag(), rewards::Chrf()}, kMaxFrameBytes);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMaxFrameBytes);
  // A trainer pings a quiet stream every 20 s. By default that is abuse, and ends the connection.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (!server || port == 0) {
    std::cerr << "cannot listen on " << address << '\n';
    return EXIT_FAILURE;
  }
  server->GetHealthCheckService()->SetServingStatus(plaudit::reward::v1::RewardService::service_full_name(), true);
  std::cout << "listening on " << address.substr(0, address.rfind(':')) << ':' << port << std::endl;

  int signal = 0;
  sigwait(&stop, &signal);
  server->GetHealthCheckService()->SetServingStatus(false);
  service.Drain(kGrace);
  // Waits for the streams, and ends at the deadline those that are left.
  server->Shutdown(std::chrono::system_clock::now() + kGrace);
  return EXIT_SUCCESS;
}
