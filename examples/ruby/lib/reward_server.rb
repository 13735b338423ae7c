# frozen_string_literal: true

require "grpc"
require "grpc/health/checker"
require "reward_service_services_pb"

require "reward_server/answer_tag"
require "reward_server/ruby_parses"
require "reward_server/service"

# Two rewards over plaudit.reward.v1.
module RewardServer
  MAX_FRAME_BYTES = 16 * 1024 * 1024
  # Each open stream holds a thread of the pool; one more than that is answered with RESOURCE_EXHAUSTED.
  THREADS = 64
  # How long accepted work is still served after SIGTERM, in seconds.
  GRACE = 10

  # Serves until SIGTERM or SIGINT.
  def self.run(address)
    service = Service.new([AnswerTag, RubyParses])
    health = Grpc::Health::Checker.new
    statuses = Grpc::Health::V1::HealthCheckResponse::ServingStatus
    services = ["", Service.service_name]
    health.set_status_for_services(statuses::SERVING, *services)

    server = GRPC::RpcServer.new(
      pool_size: THREADS,
      server_args: {
        "grpc.max_receive_message_length" => MAX_FRAME_BYTES,
        # A trainer pings a quiet stream every 20 s. By default that is abuse, and ends the connection.
        "grpc.http2.max_ping_strikes" => 0
      }
    )
    port = server.add_http2_port(address, :this_port_is_insecure)
    abort "cannot listen on #{address}" if port.zero?
    server.handle(service)
    server.handle(health)
    running = Thread.new { server.run }
    server.wait_till_running

    # A queue is what a signal handler may use: it takes no lock.
    stop = Queue.new
    %w[TERM INT].each { |signal| trap(signal) { stop << signal } }
    $stdout.puts "listening on #{address.sub(/:\d+\z/, ":#{port}")}"
    $stdout.flush

    stop.pop
    health.set_status_for_services(statuses::NOT_SERVING, *services)
    service.drain(GRACE)
    server.stop
    running.join
  end
end
